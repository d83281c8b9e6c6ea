"""dml report on trained runs, and its messages about mistakes."""

from __future__ import annotations

import errno
import os
import re
import tempfile

import pytest

from dml.core.installation import shell_command
from dml.results import catalog
from tests.commands import report


@pytest.fixture
def two_seeds(run_tiny, tmp_path):
    for seed in (0, 1):
        run_tiny(f"seed={seed}", "protocol.epochs=1")
    return tmp_path / "outputs"


@pytest.mark.pictures
def test_runs_of_no_experiment(two_seeds, tmp_path, capsys):
    assert report(["single", "--runs", str(two_seeds), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "1 configuration" in out
    assert "stand-in data" in out
    html = (tmp_path / "out" / "single.html").read_text()
    assert html.count("<figure>") == 2  # learning curves, neighbors
    assert re.search(r"\d\.\d+, \d+\.\d+<", html)  # of two seeds both values
    assert (tmp_path / "out" / "single.md").exists()
    assert (tmp_path / "out" / "single.csv").exists()


def test_an_experiment_and_all(two_seeds, tmp_path, capsys, monkeypatch):
    known = ["mft_table12", "mft_figure5"]
    monkeypatch.setattr(catalog, "experiment_ids", lambda: known)
    arguments = ["--runs", str(two_seeds), "--no-figures"]
    assert report(["mft_table12", *arguments]) == 0
    out = capsys.readouterr().out
    assert "25.3 ± 0.3" in out
    command = f"{shell_command('train')} experiment=mft_table12 loss.alpha=0.01"
    assert f"missing: {command} outputs={two_seeds}" in out
    assert report(["all", *arguments]) == 0
    html = (two_seeds / "reports" / "all.html").read_text()
    assert all(f'id="{name}"' in html for name in (*known, "single"))


@pytest.mark.parametrize(
    ("words", "status", "answer"),
    [
        (["mft_table1,mft_table2"], 2, "experiment: mft_table1,mft_table2 are several; name one"),
        (["mft_tabel12"], 2, "experiment: no 'mft_tabel12'; did you mean 'mft_table12'?"),
        (["single"], 1, "experiment: no 'single'; those with finished runs in "),
        (["mft_table2", "loss=ms"], 2, "report: takes no options such as loss=ms; only ids of "),
        (["single", "--out", __file__], 2, f"--out: {__file__} is not a folder; "),
    ],
)
def test_mistakes_are_one_line(words, status, answer, tmp_path, capsys):
    assert report([*words, "--runs", str(tmp_path / "none")]) == status
    err = capsys.readouterr().err
    assert err.startswith(f"error: {answer}")
    assert len(err.splitlines()) == 1


def test_a_folder_without_runs_has_a_note(two_seeds, tmp_path, capsys):
    words = ["mft_table12", "--no-figures", "--out", str(tmp_path / "reports")]
    assert report([*words, "--runs", str(tmp_path / "typo")]) == 0
    assert f"note: {tmp_path}/typo has no runs for this report" in capsys.readouterr().err
    assert report(["single", *words[1:], "--runs", str(two_seeds)]) == 0
    assert "note:" not in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named_with_the_option(tmp_path, monkeypatch, capsys):
    def refuse(**options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert report(["mft_table2", f"--runs={tmp_path}", "--no-figures"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"error: out: {tmp_path}/reports cannot be written to (Permission denied"
    )
    assert "--out=<folder> puts the report elsewhere" in line
