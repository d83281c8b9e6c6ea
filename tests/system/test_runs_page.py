"""Commands that docs/runs.md shows do what it says."""

import re
import shlex
from pathlib import Path

import pytest

from dml.cli.program import main
from dml.cli.runs_command import ACTIONS
from dml.results.frame import load_frame, one_per_run
from tests.stored_runs import write_stored_run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ dml (.*)$", PAGE, re.M)]
LISTS = [words[1:] for words in COMMANDS if words[0] == "runs"]
ID = re.compile(r"[0-9a-f]{8}")


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """Finished and stopped runs below outputs/ of the current folder, and a user who agrees."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    for loss in ("ms", "mfcwms"):
        for seed in (0, 1):
            write_stored_run(tmp_path / "outputs", 0.5, loss=loss, seed=seed, epochs=2)
    write_stored_run(tmp_path / "outputs", None, seed=2)
    return tmp_path / "outputs"


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_lists(outputs, capsys, words):
    runs = one_per_run(load_frame(outputs))
    ids = dict(zip(filter(ID.fullmatch, words), runs.id, strict=False))
    assert main(["runs", *(ids.get(word, word) for word in words)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "none of" not in shown.out
    assert "rm" not in words or load_frame(outputs).folder.nunique() == len(runs) - 1


def test_all_actions_are_shown():
    assert {words[0] for words in LISTS if words} >= set(ACTIONS) - {"list"}
