from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dml.core.errors import UserError
from dml.data.categories import categories_of_classes, image_categories
from dml.data.image_index import ImageIndex
from dml.data.label_noise import add_label_noise
from dml.data.preparation.image_check import exclude_undecodable, first_of_classes
from dml.data.preparation.sources import SOURCES
from dml.data.protocol import create_jobs
from dml.data.protocol_splits import merge_query_and_gallery, take_part
from dml.data.readers.folder import read_folder
from dml.data.readers.inshop import read_inshop
from tests.data.trees import TREES, class_folders, inshop_tree, save, sop_tree, truncate

OPTION = "data.sampler"


def small_index(categories=("a", "a", "b", "b", "a", "a", "b", "b")) -> ImageIndex:
    """Eight classes of two images, of which the first half is for training."""
    labels = np.repeat(np.arange(8), 2)
    roles = np.where(labels < 4, "train", "test")
    pixels = np.zeros((16, 2, 2, 3), np.uint8)
    return ImageIndex("small", pixels, labels, roles, categories=np.repeat(categories, 2))


def csv_of(root: Path, categories: list[str], column: str = "category") -> Path:
    """A CSV file of four classes of two images with a category each."""
    lines = [f"path,label,{column}"]
    for row, category in enumerate(categories):
        save(root / f"{row}.png", row)
        lines.append(f"{row}.png,class{row // 2},{category}")
    (root / "images.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root / "images.csv"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sop", {"bicycle"}),
        ("inshop", {"Dresses"}),
        ("inat", {"Aves", "Fungi"}),
        ("cub", None),
        ("cars", None),
    ],
)
def test_readers_know_the_categories(tmp_path, name, expected):
    TREES[name](tmp_path)
    categories = SOURCES[name].read(tmp_path, images=12, classes=4).categories
    assert (categories if expected is None else set(categories)) == expected


def test_super_classes_of_sop_are_those_of_the_table(tmp_path):
    sop_tree(tmp_path)
    folder = tmp_path / "Stanford_Online_Products"
    (folder / "coffee_maker_final").mkdir()
    for part in ("train", "test"):
        table = folder / f"Ebay_{part}.txt"
        lines = []
        for line in table.read_text().splitlines():
            number, label, _, path = line.split()
            if label in ("2", "4"):
                moved = path.replace("bicycle", "coffee_maker")
                (folder / path).rename(folder / moved)
                line = f"{number} {label} 3 {moved}"
            lines.append(line)
        table.write_text("\n".join(lines) + "\n")
    index = SOURCES["sop"].read(tmp_path, images=12, classes=4)
    names = np.array(["bicycle", "coffee_maker"])
    assert index.categories.tolist() == names[index.labels % 2].tolist()


def test_an_item_of_inshop_has_one_garment_without_the_gender(tmp_path):
    inshop_tree(tmp_path)
    folder = tmp_path / "inshop"
    table = folder / "list_eval_partition.txt"
    text = table.read_text()
    moved = {"id_00000001/02_front.jpg": "WOMEN/Skirts", "id_00000002": "MEN/Denim"}
    for part, garment in moved.items():
        (folder / f"img/{garment}/{part}").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"img/WOMEN/Dresses/{part}").rename(folder / f"img/{garment}/{part}")
        text = text.replace(f"WOMEN/Dresses/{part}", f"{garment}/{part}")
    table.write_text(text)
    index = read_inshop(tmp_path, images=12, classes=4)
    of_classes = [set(index.categories[index.labels == label]) for label in range(4)]
    assert of_classes == [{"Dresses"}, {"Denim"}, {"Dresses"}, {"Dresses"}]


def test_a_column_of_a_csv_file(tmp_path):
    composed, decomposed = "V\u00f6gel", "Vo\u0308gel"
    given = [composed, f" {decomposed} ", "a/b", "a/b", "7", "7", "", ""]
    index = read_folder(csv_of(tmp_path, given))
    assert index.categories.tolist() == [composed, composed, "a/b", "a/b", "7", "7", "", ""]
    assert len(index.images) == 8  # without a category an image stays
    other = read_folder(csv_of(tmp_path, given, column="Category"))
    assert other.categories is None  # the name of a column as it is written
    assert other.fingerprint() == index.fingerprint()
    assert read_folder(csv_of(tmp_path, [""] * 8)).categories is None


def test_a_row_with_a_category_alone_is_empty(tmp_path):
    path = csv_of(tmp_path, ["a"] * 8)
    path.write_text(path.read_text() + ",,a\n")
    index = read_folder(path)
    assert len(index.images) == 8
    assert not index.notes


def test_a_reader_gives_one_per_image_of_any_type():
    index = small_index()
    numbers = replace(index, categories=[3] * 16)
    assert numbers.categories.tolist() == ["3"] * 16
    missing = replace(index, categories=[None, float("nan"), pd.NA, "nan", *"b" * 12])
    assert missing.categories[:4].tolist() == ["", "", "", "nan"]
    with pytest.raises(ValueError, match="categories: 15 for 16 images"):
        replace(index, categories=["a"] * 15)


def test_every_part_of_a_dataset_keeps_them(tmp_path):
    index = small_index()
    by_label = dict(zip(index.labels.tolist(), index.categories, strict=True))
    parts = [take_part(index, 4, 1).subset("train", "test"), merge_query_and_gallery(index)]
    for splits in ("published", "mlrc", "ccp", "holdout"):
        for job in create_jobs(splits, 1, index):
            parts += [job.train, job.validation.query, job.test.query]
    for part in parts:
        rows = getattr(part, "rows", np.arange(16))
        assert part.categories.tolist() == [by_label[index.labels[row]] for row in rows]
    class_folders(tmp_path)
    photos = replace(read_folder(tmp_path), categories=[f"category{row}" for row in range(12)])
    assert first_of_classes(photos).categories.tolist() == [
        f"category{row}" for row in (0, 3, 6, 9)
    ]
    truncate(photos.images[4])
    kept = exclude_undecodable(photos, skip=True, folder=tmp_path / ".cache")
    assert kept.categories.tolist() == [f"category{row}" for row in range(12) if row != 4]


def test_label_noise_moves_an_image_to_the_category_of_its_wrong_class():
    labels = np.repeat(np.arange(20), 10)
    index = ImageIndex(
        "x",
        np.zeros((200, 1, 1, 3), np.uint8),
        labels,
        np.full(200, "train"),
        categories=[f"category{label // 5}" for label in labels],
    )
    noisy, report = add_label_noise(index.subset("train"), 0.5, seed=0)
    assert report.changed == 100
    assert noisy.categories.tolist() == [f"category{label // 5}" for label in noisy.labels]
    assert categories_of_classes(noisy, OPTION).tolist() == [label // 5 for label in range(20)]
    assert index.categories.tolist() == [f"category{label // 5}" for label in labels]


def test_numbers_follow_the_classes_of_the_subset():
    subset = small_index(("b", "c", "a", "c", "x", "x", "x", "x")).subset("train")
    assert categories_of_classes(subset, OPTION).tolist() == [1, 2, 0, 2]
    some = subset.of_classes([1, 3])
    assert categories_of_classes(some, OPTION).tolist() == [0, 0]


@pytest.mark.parametrize("names", [(), tuple(f"class {label}" for label in range(8))])
def test_what_is_missing_is_one_line(names):
    index = replace(small_index(), class_names=names)
    shown = "'class 3'" if names else "3"
    mixed, empty = index.categories.copy(), index.categories.copy()
    mixed[7], empty[6:8] = "other\nline", ""
    cases = {
        f"class {shown} has images of the categories 'b' and 'other": mixed,
        f"2 of 8 images have no category, first one of class {shown}": empty,
        "data 'small' has no categories; SOP": None,
    }
    for message, categories in cases.items():
        train = replace(index, categories=categories).subset("train")
        with pytest.raises(UserError) as raised:
            categories_of_classes(train, OPTION)
        assert str(raised.value).startswith(f"{OPTION}: {message}")
        assert "\n" not in str(raised.value)
    some = replace(index, categories=mixed).subset("train").of_classes([1, 3])
    with pytest.raises(UserError, match=f"class {shown} has images of the categories"):
        categories_of_classes(some, OPTION)
    both = replace(index, categories=mixed)
    assert len(image_categories(both.subset("train"), "evaluation.by")) == 8  # of images: allowed
    test = replace(index, categories=empty).subset("test")
    assert categories_of_classes(test, OPTION).tolist() == [0, 0, 1, 1]  # its images have them
