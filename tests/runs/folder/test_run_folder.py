import errno
import os
from pathlib import Path

import pytest

from dml.core.errors import ConfigError
from dml.runs.folder.run_folder import RunFolder, check_readable


def test_a_run_keeps_its_name(tmp_path):
    assert RunFolder(tmp_path).run_id() == RunFolder(tmp_path).run_id()


def test_a_folder_of_another_user_is_not_called_absent(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    folder.mkdir()
    stat = os.stat

    def refuse(path, **options):
        if Path(path).parent == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(ConfigError, match=r"run: .*/run cannot be read: Permission denied"):
        check_readable(folder)
    check_readable(tmp_path / "absent")
