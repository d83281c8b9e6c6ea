"""`dml evaluate` without a run: what it says of a network that nobody has trained."""

import json

import pytest

from tests.commands import evaluate

DIGITS = ("data=digits", "device=cpu")


@pytest.mark.parametrize("words", [["loss=ms"], ["loss=ms", "optim.lr=1"], ["method=metrix"]])
def test_options_of_a_training_are_refused_without_a_run(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert evaluate([*DIGITS, *words]) == 2
    err = capsys.readouterr().err
    assert "loss: nothing is trained here" in err or "method: nothing is trained here" in err
    assert "run=<run folder>" in err
    assert not (tmp_path / "outputs").exists()


def test_scores_of_random_weights_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert evaluate([*DIGITS, "--overwrite"]) == 0
    out = capsys.readouterr().out
    assert "note: small_cnn has random weights: these are scores before any training" in out
    (scores,) = (tmp_path / "outputs/evaluations").rglob("evaluation.json")
    assert json.loads(scores.read_text())["untrained"] is True
