from pathlib import Path

import pytest

from dml.data.cub import read_cub
from dml.errors import UserError
from tests.data.trees import cub_tree


def test_cub_is_listed_in_the_order_of_its_own_tables(tmp_path: Path):
    index = read_cub(cub_tree(tmp_path), images=12, classes=4)
    assert index.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert index.roles.tolist() == ["train"] * 6 + ["test"] * 6
    assert index.images[4].name == "Bird_1_0001.jpg"
    assert index.recall_at == (1, 2, 4, 8)
    assert not index.stand_in


def test_absent_cub_says_where_it_was_looked_for(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.root: CUB-200-2011 is not under"):
        read_cub(tmp_path)


def test_cub_with_an_image_gone_says_how_many_are_there(tmp_path: Path):
    next((cub_tree(tmp_path) / "CUB_200_2011/images").rglob("*.jpg")).unlink()
    with pytest.raises(UserError, match="found 11 of 12 images"):
        read_cub(tmp_path, images=12, classes=4)


def test_cub_with_another_count_is_refused(tmp_path: Path):
    cub_tree(tmp_path)
    with pytest.raises(UserError, match="12 of 11788 images"):
        read_cub(tmp_path)
    with pytest.raises(UserError, match="4 of 5 classes"):
        read_cub(tmp_path, images=12, classes=5)


def test_cub_with_a_damaged_table_is_refused(tmp_path: Path):
    labels = cub_tree(tmp_path) / "CUB_200_2011/image_class_labels.txt"
    lines = labels.read_text().splitlines()
    labels.write_text("\n".join(lines[:-2]))
    with pytest.raises(UserError, match="lacks image 11 and 1 more"):
        read_cub(tmp_path, images=12, classes=4)
    labels.write_text("\n".join(["1", *lines[1:]]))
    with pytest.raises(UserError, match="without two columns"):
        read_cub(tmp_path, images=12, classes=4)
