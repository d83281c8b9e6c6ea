"""Errors of atomic writing name what is written, not the temporary file beside it."""

import os
import shutil
import stat
import tempfile
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


@pytest.fixture(params=[0o022, 0o027, 0o077, 0o002], ids=oct)
def umask(request):
    """The umask of the process, for one test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def write_in_place(path):
    path.write_text("new")


def write_by_another_file(path):
    """As libraries do that replace their output themselves, with a private file of `mkstemp`."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    os.close(descriptor)
    Path(name).write_text("new")
    os.replace(name, path)


def write_more_openly(path):
    path.write_text("new")
    path.chmod(0o777)


@pytest.mark.parametrize("write", [write_in_place, write_by_another_file, write_more_openly])
@pytest.mark.parametrize("before", [None, 0o600, 0o444])
def test_files_get_the_mode_of_the_umask(umask, write, before, tmp_path):
    path = tmp_path / "file"
    if before is not None:
        path.write_text("old")
        path.chmod(before)
    with replace_file(path) as temporary:
        write(temporary)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


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
