"""Which folders are splits, which are classes, and which are neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.image_index import describe_images
from dml.data.readers.folder import list_images, read_folder
from dml.data.readers.folder_names import is_system_folder, parse_split


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def tree(root: Path, **folders: str) -> Path:
    """Split folders with two images of each class: `tree(root, train="ab", test="cd")`."""
    for folder, classes in folders.items():
        touch(root, *(f"{folder}/{name}/{n}.png" for name in classes for n in "12"))
    return root


def roles_of(root: Path) -> dict[str, str]:
    """Class → role."""
    index = read_folder(root)
    names = [path.parent.name for path in index.images]
    return dict(zip(names, index.roles.tolist(), strict=True))


EXPECTED = {"a": "train", "b": "train", "c": "test", "d": "test"}


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train", "test"),
        ("Train", "Test"),
        ("TRAIN", "TESTING"),
        ("training", "testing"),
        ("cars_train", "cars_test"),
        ("train_images", "test_images"),
        ("images-train", "images-test"),
        ("train set", "test set"),
        ("trainset", "testset"),
        ("CarsTrain", "CarsTest"),
        ("train", "images_test"),
        ("train2017", "val2017"),
        ("train", "val"),
        ("train", "valid"),
        ("Train", "Validation"),
        ("training", "validation"),
        ("01_train", "02_val"),
        ("trains", "tests"),
    ],
)
@pytest.mark.promise(
    "guides/own_images.md",
    "folders are splits in another spelling: they are read as splits",
)
def test_folders_that_are_splits_in_any_spelling_are_no_classes(tmp_path, train, test):
    root = tree(tmp_path, **{train: "ab", test: "cd"})
    assert roles_of(root) == EXPECTED
    index = read_folder(root)
    assert index.own_split
    as_test = [note for note in index.notes if "is read as the test split" in note]
    assert len(as_test) == ("val" in test.lower())
    _, labels = list_images(root)
    assert {*labels.values()} == {*"abcd"}


def test_query_and_gallery_in_any_case(tmp_path):
    tree(tmp_path, Train="ab", QUERY="cd", Gallery="cd")
    index = read_folder(tmp_path)
    assert [len(index.subset(role)) for role in ("train", "query", "gallery")] == [4, 4, 4]


@pytest.mark.parametrize("name", ["val", "Valid", "validation", "cars_val"])
@pytest.mark.parametrize("classes", ["ef", "ab", "cd"])
def test_validation_images_beside_a_test_are_left_out_and_named(tmp_path, name, classes):
    prefix = "cars_" if "_" in name else ""
    tree(tmp_path, **{f"{prefix}train": "ab", f"{prefix}test": "cd", name: classes})
    index = read_folder(tmp_path)
    for role, expected in (("train", "ab"), ("test", "cd"), ("unused", classes)):
        images = [index.images[row] for row in index.subset(role).rows]
        assert {path.parent.name for path in images} == {*expected}
    (note,) = index.notes
    assert note.startswith(f"data: '{name}' is left out")


@pytest.mark.parametrize(
    "names",
    [
        ("bus", "car", "train"),
        ("bus", "train", "trainer"),
        ("trainer", "testosterone"),
        ("bus", "car", "ship", "tram", "train", "test"),
        ("bullet_train", "drug_test"),
        ("valid", "invalid"),
        ("positive_test", "negative_test"),
        ("recycler", "bin"),
        ("valley", "training", "hill"),
        ("running", "walking", "training", "tests", "sitting", "jumping"),
        ("train", "trains"),
    ],
)
def test_classes_called_like_splits_stay_classes(tmp_path, names):
    touch(tmp_path, *(f"{name}/{n}.png" for name in names for n in "12"))
    index = read_folder(tmp_path)
    assert not index.own_split
    assert {path.parent.name for path in index.images} == {*names}
    _, labels = list_images(tmp_path)
    assert {*labels.values()} == {*names}


def test_a_class_of_a_split_may_be_called_like_it(tmp_path):
    touch(tmp_path, "train/a/1.png", "train/b/1.png", "test/test tubes/1.png")
    touch(tmp_path, "test/test tubes/2.png")
    assert read_folder(tmp_path).class_names == ("a", "b", "test tubes")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("train/1 train/2 test/1 test/2", "'test' is a split without folders of classes"),
        ("cars_train/1 cars_train/2 cars_test/1", "'cars_test' is a split"),
        ("bounding_box_train/1 bounding_box_test/1 query/1", "without folders"),
        ("Train/1 val/1", "without folders"),
        ("train_a/1 train_b/1 test_a/1 test_b/1", "without folders"),
        ("train/a/1 train/b/1 test/1", "'test' is a split without folders"),
        ("train/a/1 train/b/1", "'train' is the only split"),
        ("train/1 train/2", "'train' is the only split"),
        ("train/a/1 test/b/1 tset/c/1", "the folder 'tset' is next to splits"),
        ("train/a/1 test/b/1 other/1 more/1 most/1", "'more' is next to splits"),
        (
            "train/a/1 train_masks/b/1 test/c/1",
            "'train' and 'train_masks' are both the split train",
        ),
        ("cars_train/cars_train/1 cars_test/cars_test/1", "'cars_test/cars_test' holds images"),
        ("train/images/1 test/images/1", "'test/images' holds images without folders of classes"),
        ("train/a/1 train/b/1 test/test_images/1", "'test/test_images' holds images without"),
        ("data/train/a/1 data/test/b/1", r"the only folder 'data' holds splits \(test, train\)"),
        ("images/train/1 images/test/1", "the only folder 'images' holds splits"),
        ("test/a/1 val/b/1", "the splits are test, val; expected 'train' and 'test'"),
    ],
)
@pytest.mark.promise(
    "guides/own_images.md",
    "split folders hold no folders of classes: one line shows the layout",
)
def test_splits_in_another_layout_are_refused_in_a_line(tmp_path, names, message):
    touch(tmp_path, *(f"{name}.png" for name in names.split()))
    with pytest.raises(UserError, match=message) as caught:
        read_folder(tmp_path)
    assert "\n" not in str(caught.value)
    if "split without" in message or "only split" in message:
        assert "train/<class>/<image> and test/<class>/<image>" in str(caught.value)


def test_images_of_splits_without_classes_have_no_classes(tmp_path):
    touch(tmp_path, *(f"{name}/{n}.png" for name in ("Train", "val") for n in "12"))
    files, labels = list_images(tmp_path)
    assert (len(files), labels) == (4, {})


SYSTEM = (
    *("__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"),
    *(".Trash-1000", ".Trashes", "#recycle", "@Recycle", "#snapshot", "LOST.DIR", "RECYCLER"),
)


@pytest.mark.parametrize("name", SYSTEM)
@pytest.mark.promise(
    "guides/own_images.md",
    "a disk, an archive or a photo server has left folders: they are neither classes nor images",
)
def test_folders_of_systems_are_neither_classes_nor_images(tmp_path, name, caplog):
    tree(tmp_path, a="12", b="12")  # two folders in each class
    for parent in ("", "a/", "b/1/"):
        touch(tmp_path, f"{parent}{name}/x.png", f"{parent}{name}/deep/y.jpg")
    assert is_system_folder(name)
    index = read_folder(tmp_path)
    assert (len(index.images), len({*index.labels})) == (8, 2)
    files, labels = list_images(tmp_path)
    assert (len(files), {*labels.values()}) == (8, {"a", "b"})
    if name.startswith("."):
        assert not index.notes
        return
    (note,) = index.notes
    assert f"6 files of {tmp_path} are left out: 6 in {name}" in note
    assert f"6 in {name}" in caplog.text  # of list_images


@pytest.mark.promise(
    "guides/own_images.md",
    "files are left out: one line counts them by the reason",
)
def test_everything_that_is_left_out_is_counted_in_a_line(tmp_path):
    tree(tmp_path, train="ab", test="cd")
    touch(tmp_path, "train/a/._1.png", "train/a/Thumbs.db", "desktop.ini", "overview.jpg")
    touch(tmp_path, "train/loose.png", "train/a/3.CR2", "test/c/3.mp4", "__MACOSX/a/._1.png")
    touch(tmp_path, "train/a/3")
    index = read_folder(tmp_path)
    assert len(index.images) == 8
    (note,) = index.notes
    parts = ("7 files", "1 hidden", "2 outside of folders of classes", "1 in __MACOSX")
    parts += ("1 .cr2, which is not read", "1 .mp4, which", "1 without an ending such as .jpg")
    assert [part for part in parts if part not in note] == []


def write_table(root: Path, splits: dict[str, str]) -> Path:
    rows = ["path,label,split"]
    for name, split in splits.items():
        for number in "12":
            touch(root, f"{name}{number}.png")
            rows.append(f"{name}{number}.png,{name},{split}")
    (root / "list.csv").write_text("\n".join(rows) + "\n")
    return root / "list.csv"


@pytest.mark.parametrize(("train", "test"), [("Train", "TEST"), ("training", "valid")])
def test_splits_of_a_table_have_any_spelling_too(tmp_path, train, test):
    index = read_folder(write_table(tmp_path, {"a": train, "b": train, "c": test, "d": test}))
    assert index.roles.tolist() == ["train"] * 4 + ["test"] * 4
    assert len(index.notes) == (test == "valid")


def test_validation_images_of_a_table_are_left_out_beside_a_test(tmp_path):
    splits = {"a": "train", "b": "train", "c": "test", "d": "test", "e": "val"}
    index = read_folder(write_table(tmp_path, splits))
    assert index.roles.tolist() == ["train"] * 4 + ["test"] * 4 + ["unused"] * 2
    assert "'val' is left out" in index.notes[0]


def test_a_name_that_is_no_utf8_is_a_class(tmp_path):
    tree(tmp_path, a="1", b="1")
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    touch(tmp_path, f"{name}/1.png", f"{name}/2.png")
    index = read_folder(tmp_path, split_seed=0)
    assert len({*index.labels}) == 3
    assert index.fingerprint()


@pytest.mark.parametrize("name", ["trainer", "testosterone", "contest", "detrain", "", "123", "__"])
def test_words_that_contain_a_split_are_none(name):
    assert parse_split(name) is None


@pytest.mark.parametrize("name", ["dev", "eval", "Evaluation", "holdout", "cars_eval"])
def test_other_names_of_validation_are_the_test_where_there_is_no_other(tmp_path, name):
    train = "cars_train" if "_" in name else "training"
    tree(tmp_path, **{train: "abc", name: "def"})
    index = read_folder(tmp_path)
    assert index.own_split
    assert {path.parent.name for path in index.images} == {*"abcdef"}
    assert any("is read as the test split" in note for note in index.notes)


@pytest.mark.parametrize("others", [("extra",), ("train_extra",), ("images", "masks")])
def test_a_split_beside_unknown_folders_of_classes_is_refused(tmp_path, others):
    """They would be one class each, and every score 100."""
    tree(tmp_path, train="abc", **dict.fromkeys(others, "def"))
    with pytest.raises(UserError, match=r"'train' is a split, and .* is none that is known"):
        read_folder(tmp_path)


def test_test_images_of_one_class_are_noted(tmp_path):
    touch(tmp_path, *(f"{name}/{n}.png" for name in "ab" for n in "123"))
    notes = describe_images(read_folder(tmp_path))
    assert any("every score is 100" in note for note in notes)
