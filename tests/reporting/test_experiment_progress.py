"""Progress of experiments, as scripts/plan.py shows it."""

from __future__ import annotations

from scripts.plan import main


def test_plan_lists_cells_with_their_budget(tmp_path, capsys):
    assert main(["mft_table12", "--runs", str(tmp_path), "protocol.repeats=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("missing") == 6
    assert "[reduced: protocol.repeats=2]" in out
    assert main(["mft_table99"]) == 1


def test_plan_reads_the_runs_of_another_folder(tmp_path, capsys):
    assert main(["mft_table12", f"outputs={tmp_path}", "loss.alpha=1"]) == 0
    assert f"loss.alpha=1 outputs={tmp_path}" in capsys.readouterr().out
    assert main(["mft_table12", "loss.alpha=1"]) == 0
    assert "outputs=" not in capsys.readouterr().out


def test_plan_says_that_a_cost_is_unknown(tmp_path, capsys):
    words = ["mft_table12", "data=folder", "data.root=images", "loss.alpha=1"]
    assert main([*words, "--runs", str(tmp_path)]) == 0
    assert "unknown" in capsys.readouterr().out


def test_plan_explains_mistakes_as_training_does(capsys):
    assert main(["mft_table2", "data=cub", "loss=mfcwm"]) == 1
    assert "did you mean 'mfcwms'" in capsys.readouterr().err
    assert main(["metrix_table3", "loss=contrastive", "method=proxy_synthesis"]) == 1
    err = capsys.readouterr().err
    assert err == (
        "error: method=proxy_synthesis: not combined with loss=contrastive in this experiment\n"
    )
