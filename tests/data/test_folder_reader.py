from pathlib import Path

import pytest

from dml.data.folder import read_folder
from dml.errors import UserError
from tests.data.trees import class_folders, save


def table(root: Path, rows: list[str], header: str = "path,label,split") -> Path:
    path = root / "images.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_first_half_of_the_class_folders_trains(tmp_path: Path):
    class_folders(tmp_path, classes=5)
    (tmp_path / "class_0" / "notes.txt").write_text("no image")
    save(tmp_path / ".cache" / "a.jpg", 0)
    save(tmp_path / "class_1" / ".thumbs" / "a.jpg", 0)
    (tmp_path / "empty").mkdir()
    index = read_folder(tmp_path)
    assert len(index.images) == 15
    assert index.view("train").classes.tolist() == [0, 1]
    assert index.view("test").classes.tolist() == [2, 3, 4]


def test_class_folders_named_by_numbers_are_in_numerical_order(tmp_path: Path):
    for name in ("1", "2", "10", "9"):
        save(tmp_path / name / "a.png", 0)
    index = read_folder(tmp_path)
    order = [
        path.parent.name
        for path, _ in sorted(
            zip(index.images, index.labels, strict=True), key=lambda pair: pair[1]
        )
    ]
    assert order == ["1", "2", "9", "10"]


def test_csv_names_images_relative_to_itself_and_their_split(tmp_path: Path):
    class_folders(tmp_path, classes=2)
    elsewhere = save(tmp_path / "elsewhere" / "b.jpg", 1)
    rows = [
        "class_0/0.jpg,zebra,train",
        "class_0/1.jpg,ant,train",
        "class_1/0.jpg,bee,query",
        f"{elsewhere},bee,gallery",
    ]
    index = read_folder(table(tmp_path, rows))
    assert index.labels.tolist() == [2, 0, 1, 1]
    assert index.roles.tolist() == ["train", "train", "query", "gallery"]
    assert index.images[3] == elsewhere


def test_csv_without_split_trains_on_the_first_half_of_the_classes(tmp_path: Path):
    class_folders(tmp_path, classes=2)
    rows = ["class_1/0.jpg,7", "class_0/0.jpg,10"]
    index = read_folder(table(tmp_path, rows, header="path,label"))
    assert index.roles.tolist() == ["train", "test"]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,label", [], "no column 'path'"),
        ("path,labels", [], "no column 'label'; did you mean 'labels'"),
        ("path,label,split", ["class_0/0.jpg,a"], "line 2: a value is missing"),
        ("path,label", ["class_0/0.jpg,a", "nothing.jpg,b"], "1 of 2 images .*nothing.jpg"),
        (
            "path,label,split",
            ["class_0/0.jpg,a,train", "class_1/0.jpg,b,tset"],
            "split 'tset'; did you mean 'test'",
        ),
        (
            "path,label,split",
            ["class_0/0.jpg,a,train", "class_1/0.jpg,b,query"],
            "no unseen images",
        ),
        ("path,label,split", ["class_0/0.jpg,a,test", "class_1/0.jpg,b,test"], "no .*'train'"),
        ("path,label", ["class_0/0.jpg,a", "class_0/1.jpg,a"], "images of 1 classes"),
    ],
)
def test_csv_that_does_not_fit_is_explained(
    tmp_path: Path, header: str, rows: list[str], message: str
):
    class_folders(tmp_path, classes=2)
    with pytest.raises(UserError, match=r"^data\.root: .*" + message):
        read_folder(table(tmp_path, rows, header))


def test_place_without_images_is_explained(tmp_path: Path):
    with pytest.raises(UserError, match="no folder or CSV file"):
        read_folder(tmp_path / "absent")
    with pytest.raises(UserError, match="images of 0 classes"):
        read_folder(tmp_path)
