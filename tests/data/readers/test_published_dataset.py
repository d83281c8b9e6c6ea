from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex
from dml.data.preparation.sources import SOURCES
from dml.data.readers.cub import read_cub
from dml.data.readers.emoji import read_emoji
from dml.data.readers.inshop import read_inshop
from dml.data.readers.shapes import read_shapes
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
