"""Progress of experiments: the table of the README and scripts/plan.py."""

from __future__ import annotations

from pathlib import Path

from dml.reporting.catalog import experiment_ids
from dml.reporting.experiment_progress import BEGIN, END, update_readme
from scripts.plan import main


def test_the_table_of_the_readme_is_up_to_date():
    """All but its status, which depends on the runs of the machine that wrote it."""
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")

    def without_status(text: str) -> list[str]:
        table = text.partition(BEGIN)[2].partition(END)[0]
        return [line.rpartition(" | ")[0] for line in table.strip().splitlines()]

    updated = update_readme(readme, dict.fromkeys(experiment_ids(), "not run"))
    assert without_status(readme) == without_status(updated)


def test_plan_lists_cells_with_their_budget(tmp_path, capsys):
    assert main(["mft_table12", "--runs", str(tmp_path), "protocol.repeats=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("missing") == 6
    assert "[reduced: protocol.repeats=2]" in out
    assert main(["mft_table99"]) == 1


def test_plan_says_that_a_cost_is_unknown(tmp_path, capsys):
    words = ["mft_table12", "data=folder", "data.root=images", "loss.alpha=1"]
    assert main([*words, "--runs", str(tmp_path)]) == 0
    assert "unknown" in capsys.readouterr().out
