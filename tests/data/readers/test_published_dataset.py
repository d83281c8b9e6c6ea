from importlib import import_module
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex
from dml.data.preparation.sources import SOURCES
from dml.data.readers.cub import read_cub
from dml.data.readers.emoji import read_emoji
from dml.data.readers.inat import read_inat
from dml.data.readers.inshop import read_inshop
from dml.data.readers.shapes import read_shapes
from tests.data.trees import TREES, inat_tree, inshop_tree

READERS = {name: SOURCES[name].read for name in sorted(TREES)}
ALL = pytest.mark.parametrize("name", READERS)
PUBLISHED = {
    "cub": (11_788, 200),
    "cars": (16_185, 196),
    "sop": (120_053, 22_634),
    "inshop": (52_712, 7_982),
    "inat": (461_939, 8_142),
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
    command = rf"; run: dml prepare {name} --root {tmp_path}"
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


def test_species_of_inat_are_those_of_both_folders(tmp_path: Path):
    """Aves/0 and Fungi/0 are two species; the split may lie beside the images or in its folder."""
    folder = inat_tree(tmp_path) / "inat"
    index = read_inat(tmp_path, images=12, classes=4)
    assert index.recall_at == (1, 4, 16, 32)
    parts = {path.relative_to(folder).parts[:3] for path in index.images}
    assert len(parts) == 4
    assert {part[0] for part in parts} == {"train_val2018"}
    for path in (folder / "Inat_dataset_splits").iterdir():
        path.rename(folder / path.name)
    again = read_inat(tmp_path, images=12, classes=4)
    assert again.images == index.images
    assert again.roles.tolist() == index.roles.tolist()


def test_published_numbers_of_images():
    """Of training and of test, In-Shop's queries and gallery together, add up to all images."""
    numbers = {"cub": 11_788, "cars": 16_185, "sop": 120_053, "inshop": 52_712, "inat": 461_939}
    for name, images in numbers.items():
        module = import_module(f"dml.data.readers.{name}")
        assert images == module.TRAIN_IMAGES + module.TEST_IMAGES


def test_another_split_of_inat_with_the_published_sum_is_refused(tmp_path: Path, monkeypatch):
    inat_tree(tmp_path)
    monkeypatch.setattr("dml.data.readers.inat.IMAGES", 12)
    with pytest.raises(UserError, match="lists 6 training images instead of 325,846; run: dml"):
        read_inat(tmp_path, images=12, classes=4)
    monkeypatch.setattr("dml.data.readers.inat.TRAIN_IMAGES", 6)
    assert len(read_inat(tmp_path, images=12, classes=4).images) == 12


def test_a_path_of_inat_without_its_folders_is_named(tmp_path: Path):
    split = inat_tree(tmp_path) / "inat/Inat_dataset_splits/Inaturalist_test_set1.txt"
    split.write_text(split.read_text() + "00.jpg\n")
    with pytest.raises(UserError, match=r"Inaturalist_test_set1\.txt is damaged"):
        read_inat(tmp_path, images=12, classes=4)


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


@pytest.mark.parametrize(
    ("read", "title", "columns", "counts"),
    [
        (read_emoji, "Emoji", "code,set", "9869 images .* 1370 classes"),
        (read_shapes, "Shapes", "object,view", "11976 images .* 998 classes"),
    ],
    ids=["emoji", "shapes"],
)
def test_errors_of_rendered_datasets_name_the_command(read, title, columns, counts, tmp_path):
    name = title.lower()
    advice = rf"; run: python studies/prepare_drawings\.py {name} --root {tmp_path}"
    with pytest.raises(UserError, match=rf"^data\.root: {title} is not under .*{advice}$"):
        read(tmp_path)
    table = tmp_path / name / "drawings.csv"
    rows = [f"label,role,{columns}", "1,train,001,00", "0,test,e02,01"]
    for group, file in [("001", "00"), ("e02", "01")]:
        image = tmp_path / name / "images" / group / f"{file}.png"
        image.parent.mkdir(parents=True)
        image.touch()

    def read_rows(*rows: str, fingerprint: str | None = None) -> ImageIndex:
        table.write_text("\n".join(rows))
        return read(tmp_path, images=2, classes=2, fingerprint=fingerprint)

    index = read_rows(*rows)
    assert (index.name, index.stand_in, index.labels.tolist()) == (name, False, [1, 0])
    assert [path.stem for path in index.images] == ["00", "01"]
    with pytest.raises(UserError, match=f"found 2 of {counts}"):
        read(tmp_path)
    with pytest.raises(UserError, match=rf"other drawings .*{advice}.*reader\.fingerprint=\w+$"):
        read_rows(*rows, fingerprint="0" * 16)
    for row, message in [
        ("1,trial,001,00", "roles: unknown 'trial'"),
        ("a,train,001,00", "invalid literal for int.*'a'"),
    ]:
        with pytest.raises(UserError, match=f"drawings.csv is damaged: {message}.*{advice}"):
            read_rows(rows[0], row, rows[2])
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=rf"drawings.csv is damaged: .*{advice}"):
        read(tmp_path)
