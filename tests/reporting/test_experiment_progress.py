"""Progress of experiments, as scripts/plan.py shows it."""

from __future__ import annotations

from scripts.plan import main


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
