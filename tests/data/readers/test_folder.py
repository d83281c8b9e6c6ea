import os
import shutil
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.decode import load_image
from dml.data.preparation.image_check import find_undecodable
from dml.data.readers.folder import list_images, read_folder
from tests.data.trees import class_folders, photo, save


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def names_of(root: Path) -> list[str]:
    """Class folders in the order of their labels."""
    index = read_folder(root)
    pairs = zip(index.labels.tolist(), (path.parent.name for path in index.images), strict=True)
    return list(dict(sorted(pairs)).values())


def test_first_half_of_the_class_folders_trains(tmp_path: Path):
    class_folders(tmp_path, classes=5)
    (tmp_path / "class_0" / "notes.txt").write_text("no image")
    save(tmp_path / ".cache" / "a.jpg", 0)
    save(tmp_path / "class_1" / ".thumbs" / "a.jpg", 0)
    touch(tmp_path, ".DS_Store", "class_1/.DS_Store", "class_1/._0.jpg", "overview.jpg")
    (tmp_path / "empty").mkdir()
    (tmp_path / "class_2" / "folder.jpg").mkdir()
    index = read_folder(tmp_path)
    assert len(index.images) == 15
    assert index.subset("train").classes.tolist() == [0, 1]
    assert index.subset("test").classes.tolist() == [2, 3, 4]


def test_classes_named_by_numbers_are_in_numerical_order_and_never_merged(tmp_path: Path):
    wide = ["9007199254740992", "9007199254740993"]
    for name in ("1", "2", "10", "9", "01", *wide):
        touch(tmp_path, f"{name}/a.png", f"{name}/b.png")
    assert names_of(tmp_path) == ["01", "1", "2", "9", "10", *wide]


def test_classes_are_shuffled_by_a_seed(tmp_path: Path):
    names = [*(f"arrow-{n}" for n in range(10)), *(f"zebra-{n}" for n in range(10))]
    touch(tmp_path, *(f"{name}/{image}.png" for name in names for image in "ab"))

    def trained(seed: int | None) -> set[str]:
        index = read_folder(tmp_path, seed)
        return {index.images[row].parent.name for row in index.subset("train").rows}

    assert trained(None) == set(names[:10])
    assert trained(0) == trained(0) != trained(1)
    assert 2 <= sum(name.startswith("arrow") for name in trained(0)) <= 8
    assert read_folder(tmp_path, 0).fingerprint() != read_folder(tmp_path, 1).fingerprint()


def test_boxes_are_cropped_and_dropped_columns_named(tmp_path: Path, caplog):
    for name in ("a", "b"):
        photo(1).save(tmp_path / f"{name}.png")
    rows = ["a.png,x,3.6,0,20,30,new,-2", "a.png,x,20,-5,40,30,old,1", "b.png,y,0,0,40,30,old,1"]
    rows.append("b.png,y,50,0,60,9,old,1")
    header = "path,label,x_1,y_1,x_2,y_2,state,width"
    index = read_folder(table(tmp_path, rows, header))
    assert "columns that are not used: state, width" in caplog.text
    assert [path.name for path in index.images[:2]] == ["a.png#4,0,20,30", "a.png#20,0,40,30"]
    whole = load_image(tmp_path / "a.png")
    assert load_image(index.images[0]).equal(whole[:, :, 4:20])
    assert load_image(index.images[2]).equal(whole)
    assert len(find_undecodable(index.images)) == 1  # no pixels in the last box
    moved = read_folder(table(tmp_path, [rows[0].replace("3.6", "5"), *rows[1:]], header))
    assert moved.fingerprint() != index.fingerprint()
    with pytest.raises(UserError, match="a box is not four numbers"):
        read_folder(table(tmp_path, [rows[0].replace("3.6", "left"), *rows[1:]], header))


def test_folders_named_as_splits_are_splits(tmp_path: Path):
    pairs = ("train/c", "train/d", "test/a", "test/b")
    touch(tmp_path, *(f"{name}/{image}.png" for name in pairs for image in "xyz"))
    index = read_folder(tmp_path)
    assert index.subset("train").classes.tolist() == [2, 3]
    assert index.subset("test").classes.tolist() == [0, 1]
    (tmp_path / "test").rename(tmp_path / "query")
    shutil.copytree(tmp_path / "query", tmp_path / "gallery")
    index = read_folder(tmp_path)
    assert [len(index.subset(role)) for role in ("train", "query", "gallery")] == [6, 6, 6]
    assert index.subset("query").classes.tolist() == [0, 1]
    touch(tmp_path, "tset/a/x.png")
    with pytest.raises(UserError, match="the folder 'tset' is next to splits"):
        read_folder(tmp_path)


def test_one_class_that_is_called_as_a_split_is_a_class(tmp_path: Path):
    touch(tmp_path, *(f"{name}/{image}.png" for name in ("bus", "car", "train") for image in "ab"))
    assert names_of(tmp_path) == ["bus", "car", "train"]


def test_place_without_images_is_explained(tmp_path: Path):
    with pytest.raises(UserError, match=r"does not exist; set it with data\.root="):
        read_folder(tmp_path / "absent")
    with pytest.raises(UserError, match="images of 0 classes"):
        read_folder(tmp_path)


def table(root: Path, rows: list[str], header: str = "path,label,split") -> Path:
    path = root / "images.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


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
    assert index.own_split
    assert index.images[3] == elsewhere


@pytest.mark.parametrize(
    "content",
    [
        "path,label\na/1.png,NA\nb/1.png,None\nb/2.png,None\n",
        "\ufeffpath,label\r\na/1.png,x\r\nb/1.png,y\r\nb/2.png,y\r\n",
        "id; label ;path\n1;x;a/1.png\n2; y;b/1.png\n\n;;\n3;y ;b/2.png",
        'label\tpath\tnote\nx\t"a/1.png"\ny\tb/1.png\ny\tb/2.png\t"two\nlines"\n',
    ],
    ids=["commas", "byte order mark", "semicolons", "tabs"],
)
def test_csv_of_every_spreadsheet_is_read(tmp_path: Path, content: str):
    touch(tmp_path, "a/1.png", "b/1.png", "b/2.png")
    (tmp_path / "list.csv").write_bytes(content.encode())
    index = read_folder(tmp_path / "list.csv")
    assert [path.name for path in index.images] == ["1.png", "1.png", "2.png"]
    assert index.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,label", [], r"must name the columns path,label .*; they are: file, label"),
        ("path,label", ["class_0/0.jpg,a", "", " ,b"], "missing: nan, b"),
        ("path,label", ["class_0/0.jpg,", "", "class_1/0.jpg, "], "no row has a label"),
        ("path,label", ["class_0/0,1.jpg,a"], "Length of header .* does not match"),
        ("path,label", ["class_0/0.jpg,a", "class_0/./0.jpg,b"], "class_0/0.jpg is listed twice"),
        ("path,label", ["class_0/0.jpg,a", "nothing.jpg,b"], "1 of 2 images .*nothing.jpg; paths"),
        (
            "path,label,split",
            ["class_0/0.jpg,a,train", "class_1/0.jpg,b,tset"],
            "the splits are train, tset; expected 'train' and",
        ),
        (
            "path,label,split",
            ["class_0/0.jpg,a,train", "class_0/1.jpg,a,test", "class_1/0.jpg,b,test"],
            r"1 class is in both training and test \(a\); scores are of unseen",
        ),
    ],
)
def test_csv_that_does_not_fit_is_explained(tmp_path, header, rows, message):
    class_folders(tmp_path, classes=2)
    with pytest.raises(UserError, match=r"^data\.root: .*" + message) as caught:
        read_folder(table(tmp_path, rows, header))
    assert "\n" not in str(caught.value)


@pytest.mark.promise("guides/own_images.md", "rows of a CSV file have no label: a note counts them")
def test_rows_without_a_label_are_counted(tmp_path):
    class_folders(tmp_path, classes=3)
    rows = [
        "class_0/0.jpg,a",
        "class_1/0.jpg, ",
        "class_1/1.jpg,b",
        "class_1/2.jpg,b",
        "class_2/0.jpg,",
    ]
    path = table(tmp_path, rows, "path,label")
    index = read_folder(path)
    assert [image.name for image in index.images] == ["0.jpg", "1.jpg", "2.jpg"]
    (note,) = index.notes
    assert note == (
        f"data: 2 of 5 rows of {path} have no label and are left out, first class_1/0.jpg"
    )


def test_unlabeled_lists_are_embedded_and_partly_labeled_ones_counted(tmp_path, caplog):
    class_folders(tmp_path, classes=1)
    files, labels = list_images(table(tmp_path, ["class_0/0.jpg,", "class_0/1.jpg,"], "path,label"))
    assert (len(files), labels) == (2, {})
    files, labels = list_images(
        table(tmp_path, ["class_0/0.jpg,a", "class_0/1.jpg,"], "path,label")
    )
    assert [*labels.values()] == ["a"]
    assert "1 of 2 rows" in caplog.text


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("a/0 b/0", None),
        ("train/a/0 test/b/0", None),
        ("0 1", None),
        ("a/0 b/0 1", "1 of 3 images are outside of folders of classes, first {root}/1.jpg"),
        ("train/a/0 train/a/1 train/2 test/b/0",
         "1 of 4 images are outside of folders of classes, first {root}/train/2.jpg"),
        ("train/a/0 extra/b/0", "the folder 'extra' is beside folders of splits"),
    ],
)  # fmt: skip
def test_images_without_a_class_leave_all_without_labels(tmp_path, caplog, names, reason):
    for number, name in enumerate(names.split()):
        save(tmp_path / f"{name}.jpg", number)
    _, labels = list_images(tmp_path)
    assert bool(labels) == (reason is None and "/" in names)
    written = f"images: no labels are written, since {reason}".format(root=tmp_path)
    assert caplog.messages == ([] if reason is None else [written])


@pytest.mark.parametrize("target", ["self", "absent"])
def test_a_link_that_leads_nowhere_is_named(tmp_path, target):
    (tmp_path / "self").symlink_to(target)
    with pytest.raises(UserError, match=r"^data\.root: .*self is a link to nothing or to itself"):
        read_folder(tmp_path / "self")


@pytest.mark.parametrize("missing", [",,,", "nan,nan,nan,nan", "NA,NA,NA,NA"])
def test_rows_without_a_box_are_whole_images(tmp_path, missing):
    class_folders(tmp_path, classes=2)
    rows = ["class_0/0.jpg,a,0,0,9,9", f"class_0/0.jpg,a,{missing}", f"class_1/0.jpg,b,{missing}"]
    rows.append("class_1/1.jpg,b,1,1,5,5")
    header = "path,label,x_1,y_1,x_2,y_2"
    index = read_folder(table(tmp_path, rows, header))
    names = [image.name for image in index.images]
    assert names == ["0.jpg#0,0,9,9", "0.jpg", "0.jpg", "1.jpg#1,1,5,5"]
    assert load_image(index.images[1]).equal(load_image(tmp_path / "class_0/0.jpg"))
    for box in ("1,2,,", "1,2,3,inf", "1,2,nan,4"):
        with pytest.raises(UserError, match=r"a box is not four numbers: class_0/0.jpg, a, 1, 2"):
            read_folder(table(tmp_path, [f"class_0/0.jpg,a,{box}", *rows[2:]], header))


@pytest.mark.skipif(os.sep != "/", reason="the separator of Windows")
def test_paths_of_windows_are_tried_with_slashes(tmp_path):
    class_folders(tmp_path, classes=2, per_class=2)
    save(tmp_path / "class_0" / "a\\b.jpg", 1)
    rows = [r"class_0\0.jpg,a", r".\class_0\1.jpg,a", r"class_0/a\b.jpg,a", r"class_1\0.jpg,b"]
    rows += [r"class_1\1.jpg,b"]
    index = read_folder(table(tmp_path, rows, "path,label"))
    assert [image.name for image in index.images] == [
        "0.jpg",
        "1.jpg",
        r"a\b.jpg",
        "0.jpg",
        "1.jpg",
    ]
    rows = [r"class_0\0.jpg,a,0,0,5,5", r"class_1\0.jpg,b,,,,", r"class_1\1.jpg,b,,,,"]
    boxed = table(tmp_path, rows, "path,label,x_1,y_1,x_2,y_2")
    assert len(read_folder(boxed).images) == 3
    (tmp_path / "list.txt").write_text("class_0\\0.jpg\nclass_1\\1.jpg\n")
    assert len(list_images(tmp_path / "list.txt")[0]) == 2


def test_loops_of_links_are_left_out_and_counted(tmp_path):
    class_folders(tmp_path, classes=3)
    (tmp_path / "class_0" / "up").symlink_to(tmp_path)
    (tmp_path / "class_1" / "other").symlink_to(tmp_path / "class_2")
    (tmp_path / "class_2" / "back").symlink_to(tmp_path / "class_1")
    index = read_folder(tmp_path)
    assert len(index.images) == 15  # those behind a link count twice
    (note,) = index.notes
    assert note.endswith("left out: 3 link to a folder above it")
