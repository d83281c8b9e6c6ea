"""A run after an edit of the user's own files, by every command that meets them."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from pathlib import Path

import pytest

import dml
from dml.results.frame import load_runs
from dml.results.run_list import rank_runs
from dml.runs.folder.stored_run import read_run
from tests.conftest import TINY

LOSS = """
import torch
from my_sign import SIGN

class Loss(torch.nn.Module):
    def forward(self, x, y):
        return SIGN * torch.cdist(x, x)[y[:, None] == y].mean()
"""
WORDS = (*TINY, "protocol.epochs=1", "protocol.steps_per_epoch=2")
OWN = ("loss=custom", "loss._target_=my_loss.Loss")


@pytest.fixture
def sign(tmp_path, monkeypatch, own_modules):
    """Writes the file that the loss imports; the next command is a new process to it."""
    monkeypatch.chdir(tmp_path)
    Path("my_loss.py").write_text(LOSS)

    def write(text: str) -> None:
        Path("my_sign.py").write_text(f"SIGN = {text}\n")
        importlib.invalidate_caches()
        for name in ("my_sign", "my_loss"):
            sys.modules.pop(name, None)
        for cached in Path("__pycache__").glob("my_*"):
            cached.unlink()

    write("1.0")
    return write


def folders() -> list[Path]:
    return sorted(Path("outputs").glob("*/*/seed*"), key=lambda path: path.stat().st_mtime)


@pytest.mark.promise(
    "guides/resume.md",
    "own code was edited: the same command starts a run of its own, with a line that says why",
)
def test_an_edited_file_is_a_run_of_its_own(sign, command_line):
    status, out, _ = command_line(*WORDS, *OWN)
    assert status == 0
    assert "note: my_" not in out
    (first,) = folders()
    sign("1.0  # a comment")
    assert "already finished" in command_line(*WORDS, *OWN)[1]
    sign("-1.0")
    _, out, _ = command_line(*WORDS, *OWN)
    assert f"note: my_sign.py has changed since {first.name} was trained" in out
    assert "already finished" not in out
    assert "already finished" in command_line(*WORDS, *OWN)[1]
    assert len(folders()) == 2
    sign("1.0")
    _, out, _ = command_line(*WORDS, *OWN)
    assert "already finished" in out
    assert str(first) in out


@pytest.mark.promise(
    "guides/sweep.md",
    "a loss was edited between the runs: both codes are configurations of their own, and never "
    "averaged",
)
def test_repeats_of_two_codes_are_not_averaged(sign, command_line):
    command_line(*WORDS, *OWN)
    sign("-1.0")
    status, _, err = command_line("-m", *WORDS, *OWN, "seed=0,1")
    assert status == 0, err
    groups = rank_runs(load_runs(Path("outputs")))
    assert sorted(len(group.table) for group in groups) == [1, 2]
    codes = [{run.content["code"]["my_sign"] for run in group.distinct} for group in groups]
    assert [len(code) for code in codes] == [1, 1]
    assert codes[0] != codes[1]


def set_age(folder: Path, seconds: float) -> None:
    """Lets all files of a run be so old."""
    time = folder.stat().st_mtime - seconds
    for file in folder.rglob("*"):
        os.utime(file, (time, time))


def test_the_newest_of_the_earlier_runs_is_named(sign, command_line):
    for text in ("1.0", "-1.0"):
        sign(text)
        command_line(*WORDS, *OWN)
    earlier = folders()
    for newest, older, text in ((*earlier, "2.0"), (*earlier[::-1], "3.0")):
        set_age(older, 2000)
        set_age(newest, -1000)  # also newer than the run of the loop's first half
        sign(text)
        _, out, _ = command_line(*WORDS, *OWN)
        assert f"note: my_sign.py has changed since {newest.name} was trained" in out


def test_files_that_are_imported_no_longer_and_new_ones_are_named_too(sign, command_line):
    command_line(*WORDS, *OWN)
    (first,) = folders()
    Path("my_scale.py").write_text("SIGN = 1.0\n")
    Path("my_loss.py").write_text(LOSS.replace("my_sign", "my_scale"))
    sys.modules.pop("my_loss")
    _, out, _ = command_line(*WORDS, *OWN)
    files = "my_loss.py, my_scale.py, my_sign.py"
    assert f"note: {files} have changed since {first.name} was trained" in out


def test_a_run_from_before_the_hashes_says_so(sign, command_line):
    command_line(*WORDS, *OWN)
    (folder,) = folders()
    for name in ("config.yaml", "summary.json"):
        text = (folder / name).read_text()
        if name == "config.yaml":
            (folder / name).write_text(text.partition("code:")[0])
        else:
            (folder / name).unlink()
    folder.rename(folder.with_name("seed0-00000000"))
    _, out, _ = command_line(*WORDS, *OWN)
    assert "seed0-00000000 does not say which code it was trained with" in out


@pytest.mark.promise(
    "guides/resume.md",
    "`resume=` would continue an unfinished run with other code: it is refused",
)
def test_a_changed_run_is_not_resumed(sign, command_line):
    command_line(*WORDS, *OWN)
    (folder,) = folders()
    sign("-1.0")
    status, out, _ = command_line(f"resume={folder}", "trust=true")
    assert status == 0
    assert "my_sign.py has changed" in out
    for words in (["overwrite=true"], []):
        if not words:
            (folder / "summary.json").unlink()
        status, _, err = command_line(f"resume={folder}", "trust=true", *words)
        assert status == 2
        assert "resume: my_sign.py has changed" in err
    sign("1.0")
    assert command_line(f"resume={folder}", "trust=true")[0] == 0


@pytest.mark.promise(
    "guides/use_your_network.md",
    "own code of the network has changed since it was trained: it is loaded with a warning",
)
def test_a_network_of_changed_code_is_loaded_with_a_warning(sign, command_line, evaluated):
    command_line(*WORDS, *OWN)
    (folder,) = folders()
    sys.path.append(str(Path.cwd()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dml.load(folder, trust=True)
        dml.export(folder, "exported", trust=True)
    sign("-1.0")
    uses = (
        lambda run: dml.load(run, trust=True),
        lambda run: dml.export(run, "again", trust=True),
        lambda run: dml.load("exported", trust=True),
    )
    for use in uses:
        with pytest.warns(UserWarning, match=r"my_sign\.py has changed since"):
            use(folder)
    Path("my_sign.py").unlink()
    Path("my_loss.py").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dml.load("exported", trust=True)


def test_evaluate_says_that_the_code_has_changed(sign, command_line, evaluated, capfd):
    command_line(*WORDS, *OWN)
    (folder,) = folders()
    evaluated(f"run={folder}", "trust=true", given=["run", "trust"])
    assert "has changed" not in capfd.readouterr().out
    sign("-1.0")
    evaluated(f"run={folder}", "trust=true", given=["run", "trust"])
    assert "note: my_sign.py has changed" in capfd.readouterr().out


def test_in_python_too(sign, capfd):
    sys.path.append(str(Path.cwd()))
    first = dml.train([*WORDS, *OWN])
    sign("-1.0")
    second = dml.train([*WORDS, *OWN])
    assert first["folder"] != second["folder"]
    assert first["metrics"] != second["metrics"]
    assert "note: my_sign.py has changed" in capfd.readouterr().out
    assert read_run(Path(second["folder"])).options["code.my_loss"]
