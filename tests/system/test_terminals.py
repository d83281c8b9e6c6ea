"""Terminals and logs whose encoding or width is unusual: the same status and the same numbers."""

from __future__ import annotations

import io
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dml.runs.console import console
from tests import commands
from tests.conftest import TINY
from tests.stored_runs import write_stored_run


@pytest.fixture
def print_in(monkeypatch):
    """Runs a command whose output has an encoding; returns the status and what it wrote."""

    def run(command, words, encoding):
        out, err = io.BytesIO(), io.BytesIO()
        for name, content in (("stdout", out), ("stderr", err)):
            stream = io.TextIOWrapper(content, encoding=encoding, write_through=True)
            monkeypatch.setattr(sys, name, stream)
        try:
            status = getattr(commands, command)(words)
        except SystemExit as exit:  # --help
            status = exit.code
        sys.stdout.flush()
        return status, out.getvalue().decode(encoding), err.getvalue().decode(encoding)

    return run


def numbers(text):
    return re.findall(r"\d+\.\d\d\b", text)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("runs", ["--runs", "{outputs}"]),
        ("runs", ["best", "--runs", "{outputs}"]),
        ("runs", ["compare", "loss=ms", "loss=triplet", "--runs", "{outputs}"]),
        ("report", ["single", "--runs", "{outputs}", "--no-figures", "--overwrite"]),
        ("plan", ["mft_table1", "--runs", "{outputs}"]),
        ("train", ["--help"]),
        ("train", ["loss=grün"]),
        ("prepare", ["földer"]),
        ("embed", ["--help"]),
        ("search", ["nö.npz", "0"]),
        ("export", ["nö", "there"]),
        ("evaluate", ["run=nö"]),
    ],
)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_commands_print_in_any_encoding(command, words, encoding, print_in, tmp_path):
    outputs = tmp_path / "outputs"
    write_stored_run(outputs)
    write_stored_run(outputs, 0.6, loss="triplet")
    words = [word.format(outputs=outputs) for word in words]
    status, out, err = print_in(command, words, encoding)
    expected, usual, _ = print_in(command, words, "utf-8")
    assert (status, numbers(out)) == (expected, numbers(usual))
    assert "Unicode" not in out + err
    assert "Traceback" not in err


def test_a_training_in_ascii_prints_the_numbers_of_one_in_utf_8(print_in, tmp_path):
    words = [*TINY, f"outputs={tmp_path / 'first'}"]
    status, out, _ = print_in("train", words, "ascii")
    expected, usual, _ = print_in("train", [*words[:-1], f"outputs={tmp_path / 'second'}"], "utf-8")
    assert status == expected == 0
    assert numbers(out) == numbers(usual) != []
    assert out.isascii()
    assert "stand-in data" in out
    logs = [next(Path(tmp_path, name).rglob("train.log")) for name in ("first", "second")]
    assert {"—" in log.read_text(encoding="utf-8") for log in logs} == {False}


COMMANDS = [
    ("runs", ["best", "--runs", "{outputs}"]),
    ("report", ["single", "--runs", "{outputs}", "--no-figures", "--overwrite"]),
    ("plan", ["mft_table1", "--runs", "{outputs}"]),
    ("train", [*TINY, "outputs={outputs}"]),
    ("evaluate", ["backbone=small_cnn", "data=digits", "outputs={outputs}", "overwrite=true"]),
]


@pytest.mark.parametrize(("command", "words"), COMMANDS)
def test_commands_need_no_home_and_give_no_warnings(
    command, words, print_in, tmp_path, monkeypatch
):
    results = []
    for name in ("usual", "homeless"):
        outputs = tmp_path / name
        write_stored_run(outputs)
        typed = [word.format(outputs=outputs) for word in words]
        with warnings.catch_warnings():
            if name == "homeless":
                monkeypatch.setenv("HOME", "/nonexistent/home")
                monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
                warnings.simplefilter("error")  # as python -W error
            status, out, err = print_in(command, typed, "utf-8")
        assert "Traceback" not in err
        results.append((status, numbers(out)))
    assert results[0] == results[1]
    assert results[0][0] == 0


def test_notes_before_a_run_are_lines_without_a_date(print_in, tmp_path):
    rows = {"embeddings": np.eye(4), "labels": np.arange(4) % 2, "more": np.zeros(4)}
    np.savez(tmp_path / "rows.npz", **rows)
    status, out, _ = print_in("evaluate", [f"embeddings={tmp_path}/rows.npz"], "utf-8")
    assert status == 0
    assert f"{tmp_path}/rows.npz: arrays that are not used: more" in out.splitlines()


@pytest.mark.parametrize("columns", [10, 20, 40])
def test_no_score_is_cut_on_a_narrow_terminal(columns, monkeypatch, run_tiny, capsys):
    monkeypatch.setattr(console, "_width", columns)
    run_tiny()
    shown = capsys.readouterr().out
    table = [line for line in shown.splitlines() if line.startswith("│")]
    assert len(table) >= 3
    for line in table:
        assert len(numbers(line)) == 2, line
