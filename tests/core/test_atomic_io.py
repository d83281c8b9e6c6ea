"""Errors of atomic writing name what is written, not the temporary file beside it."""

import shutil
from pathlib import Path

import pytest

from dml.core.atomic_io import output_folder, replace_file, write_text
from dml.core.errors import UserError
from dml.core.locks import try_lock
from dml.core.replaced_folder import replace_folder

LONG = "x" * 250  # as a name it is short enough, with what temporary names add it is not
NO_FILES = Path("/proc")  # takes no new files, also of root


def write_file(path):
    write_text(path, "text")


def write_folder(path):
    with replace_folder(path, ["x"]):
        pass


@pytest.mark.parametrize("write", [write_file, write_folder])
@pytest.mark.parametrize("name", [LONG, "x" * 300])
def test_a_name_that_is_too_long(write, name, tmp_path):
    with pytest.raises(OSError, match="File name too long") as raised:
        write(tmp_path / name)
    assert raised.value.filename == str(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not NO_FILES.is_dir(), reason="needs /proc")
@pytest.mark.parametrize("write", [write_file, write_folder])
def test_a_folder_that_takes_no_files(write):
    with pytest.raises(OSError, match="/proc/x") as raised:
        write(NO_FILES / "x")
    assert raised.value.filename == "/proc/x"


@pytest.mark.skipif(not NO_FILES.is_dir(), reason="needs /proc")
def test_a_folder_of_outputs_that_takes_no_files():
    with pytest.raises(OSError, match="/proc") as raised:
        output_folder(NO_FILES)
    assert raised.value.filename == "/proc"


def delete(folder):
    shutil.rmtree(folder)


def move(folder):
    folder.rename(folder.with_name("moved"))


def replace(folder):
    copy = shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    copy.rename(folder)


def write_and_act(run, act):
    with replace_file(run / "last.pt") as temporary:
        temporary.write_text("whole")
        act(run)


def act_and_write(run, act):
    with replace_file(run / "last.pt") as temporary:
        act(run)
        temporary.write_text("whole")


@pytest.mark.parametrize("act", [delete, move, replace])
@pytest.mark.parametrize("write", [write_and_act, act_and_write])
def test_a_folder_that_is_gone_while_a_file_is_written(write, act, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with (
        try_lock(run / "run.lock"),
        pytest.raises(UserError, match="run was deleted, moved or replaced"),
    ):
        write(run, act)
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert "last.pt" not in left
