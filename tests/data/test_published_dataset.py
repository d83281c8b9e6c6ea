from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.cub import read_cub
from dml.data.decode import load_image
from dml.data.inshop import read_inshop
from dml.data.sources import SOURCES
from tests.data.trees import TREES, inshop_tree

READERS = {name: SOURCES[name].read for name in sorted(TREES)}
ALL = pytest.mark.parametrize("name", READERS)
PUBLISHED = {
    "cub": (11_788, 200),
    "cars": (16_185, 196),
    "sop": (120_053, 22_634),
    "inshop": (52_712, 7_982),
}


@ALL
def test_reader_lists_the_published_layout(name: str, tmp_path: Path):
    index = READERS[name](TREES[name](tmp_path), images=12, classes=4)
    assert index.name == name
    assert not index.stand_in
    assert index.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    unseen = ["query", "gallery", "gallery"] if name == "inshop" else ["test"] * 3
    assert index.roles.tolist() == ["train"] * 6 + unseen * 2
    assert len({str(path) for path in index.images}) == 12
    assert {tuple(load_image(path).shape) for path in index.images} == {(3, 30, 40)}


@ALL
def test_absent_and_partial_datasets_are_explained(name: str, tmp_path: Path):
    command = rf"; run: python scripts/prepare_data.py {name} --root {tmp_path}"
    with pytest.raises(UserError, match=rf"^data\.root: .*{command}$"):
        READERS[name](tmp_path)
    index = READERS[name](TREES[name](tmp_path), images=12, classes=4)
    images, classes = PUBLISHED[name]
    counts = f"12 of {images} images .* 4 of {classes} classes"
    with pytest.raises(UserError, match=rf"{counts}{command}.*images=12 data\.reader\.classes=4$"):
        READERS[name](tmp_path)
    with pytest.raises(UserError, match="4 of 5 classes"):
        READERS[name](tmp_path, images=12, classes=5)
    index.images[5].unlink()
    with pytest.raises(UserError, match=rf"11 of 12 images .*{index.images[5]}.*{command}"):
        READERS[name](tmp_path, images=12, classes=4)


def test_cub_image_without_a_label_is_named(tmp_path: Path):
    labels = TREES["cub"](tmp_path) / "CUB_200_2011/image_class_labels.txt"
    labels.write_text("\n".join(labels.read_text().splitlines()[:-2]))
    with pytest.raises(UserError, match=r"image_class_labels.txt is damaged: .*11"):
        read_cub(tmp_path, images=12, classes=4)


def test_cub_tables_are_joined_by_number_and_not_by_line(tmp_path: Path):
    labels = TREES["cub"](tmp_path) / "CUB_200_2011/image_class_labels.txt"
    labels.write_text("\n".join(reversed(labels.read_text().splitlines())))
    index = read_cub(tmp_path, images=12, classes=4)
    assert index.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


def test_inshop_status_that_nobody_published_is_refused(tmp_path: Path):
    partition = inshop_tree(tmp_path) / "inshop/list_eval_partition.txt"
    partition.write_text(partition.read_text().replace(" gallery\n", " galery\n"))
    with pytest.raises(UserError, match="damaged: roles: unknown 'galery'"):
        read_inshop(tmp_path, images=12, classes=4)
