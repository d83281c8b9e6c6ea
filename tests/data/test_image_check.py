from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data import image_check
from dml.data.folder import read_folder
from dml.data.image_check import exclude_undecodable
from dml.data.image_index import ImageIndex
from tests.data.trees import class_folders, save, truncate


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    return read_folder(class_folders(tmp_path / "birds", classes=4, per_class=3))


def test_all_undecodable_images_are_listed_with_the_option_that_skips_them(index, tmp_path):
    for row in (2, 7):
        truncate(index.images[row])
    with pytest.raises(UserError) as error:
        exclude_undecodable(index, False, tmp_path / "cache")
    lines = str(error.value).splitlines()
    assert str(index.images[2]) in lines[0]
    assert str(index.images[7]) in lines[1]
    assert lines[2].startswith("data: 2 of 12 images of birds cannot be decoded")
    assert "data.skip_corrupt=true" in lines[2]


def test_skipped_images_leave_contiguous_labels(index: ImageIndex, tmp_path: Path):
    for row in (3, 4, 5, 11):
        truncate(index.images[row])
    kept = exclude_undecodable(index, True, tmp_path / "cache")
    assert kept.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert kept.skipped == 4
    assert len(kept.images) == len(kept.roles) == 8


def test_unchanged_files_are_decoded_once(index, tmp_path, monkeypatch):
    truncate(index.images[7])
    first = exclude_undecodable(index, True, tmp_path / "cache")
    monkeypatch.setattr(image_check, "find_undecodable", None)
    assert exclude_undecodable(index, True, tmp_path / "cache").images == first.images
    save(index.images[7], 1)
    with pytest.raises(TypeError):
        exclude_undecodable(index, True, tmp_path / "cache")
