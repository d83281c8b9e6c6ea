import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dml.core.errors import ConfigError
from dml.data.readers import digits
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


def test_images_of_the_same_names_and_sizes_may_be_others(tmp_path):
    """As drawings in a format without compression: only their bytes tell them apart."""
    index = replace(digits.read_digits(), content="of the bytes")
    folder = RunFolder(tmp_path)
    assert not folder.has_other_images(index)  # nothing is known
    folder.check_dataset(index)
    assert not folder.has_other_images(index)
    assert folder.has_other_images(replace(index, content="of others"))
    assert not folder.has_other_images(replace(index, content=""))  # it is not known
    (tmp_path / "dataset.json").write_text("{")
    assert not folder.has_other_images(index)
