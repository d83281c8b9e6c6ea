import errno
import logging
import os
import warnings

import pytest

from dml.core.run_log import run_logger, write_log


def messages(folder):
    """The log without time and process."""
    return [line.split("] ", 1)[-1] for line in (folder / "train.log").read_text().splitlines()]


def test_lines_warnings_and_the_end_are_logged(tmp_path, capfd):
    with write_log(tmp_path, "run"):
        run_logger.info("note: of a run")
        warnings.warn("of python", stacklevel=1)
        logging.getLogger("another.library").warning("of a library")
    note, warning, *_, other, end = messages(tmp_path)
    assert note == "note: of a run"
    assert "UserWarning: of python" in warning
    assert other == "of a library"
    assert end == "run finished after 0:00:00"
    assert not capfd.readouterr().out


def test_a_log_that_cannot_be_closed_hides_no_error(tmp_path, monkeypatch):
    """As on a network file system whose server is gone."""

    def fail(handler):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(logging.FileHandler, "close", fail)
    with pytest.raises(ValueError, match="of the training"), write_log(tmp_path, "run"):
        raise ValueError("of the training")


def test_a_run_goes_on_where_the_log_is_another_users(tmp_path, monkeypatch, capsys):
    """In a folder that several users share."""

    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("dml.core.run_log._LogFile", refuse)
    with write_log(tmp_path, "run"):
        run_logger.info("note: of a run")
    assert "train.log belongs to another user; this run is not logged" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["startup_file", "absent"])
def test_a_log_is_not_written_through_a_link(tmp_path, target):
    """As in a run folder of somebody else."""
    (tmp_path / "startup_file").write_text("alias ll='ls -l'\n")
    (tmp_path / "startup_file").chmod(0o644)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="a link, not a regular file"), write_log(folder, "run"):
        run_logger.info("note: of a run")
    assert (tmp_path / "startup_file").read_text() == "alias ll='ls -l'\n"
    assert (tmp_path / "startup_file").stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "absent").exists()
