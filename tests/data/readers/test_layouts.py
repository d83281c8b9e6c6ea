"""Copies of the published datasets give the same images, labels and roles in every layout."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex, split_box
from dml.data.preparation.sources import SOURCES
from dml.data.readers.cars import read_cars
from dml.data.readers.cars_classes import NAMES, order_classes
from dml.data.readers.cub import read_cub
from dml.data.readers.inat import read_inat
from dml.data.readers.inshop import read_inshop
from dml.data.readers.layouts import find_layouts, match_files
from tests.data.copies import CARS, COPIES, cars_zip
from tests.data.trees import TREES, cars_box, save

SMALL = {"images": 12, "classes": 4}
EACH = pytest.mark.parametrize("copy", COPIES)


@pytest.fixture
def published(copy: str, tmp_path: Path) -> ImageIndex:
    name = COPIES[copy][0]
    return SOURCES[name].read(TREES[name](tmp_path / "published"), **SMALL)


@pytest.fixture
def root(copy: str, published: ImageIndex, tmp_path: Path) -> Path:
    return COPIES[copy][1](published, tmp_path / "copy")


def by_content(index: ImageIndex) -> dict[bytes, tuple[int, str]]:
    """Returns the bytes of each file → its label and role."""
    rows = zip(index.images, index.labels.tolist(), index.roles.tolist(), strict=True)
    known = {split_box(file)[0].read_bytes(): (label, role) for file, label, role in rows}
    assert len(known) == len(index.images)
    return known


@EACH
def test_a_copy_has_the_images_labels_and_roles_of_the_published_files(copy, published, root):
    index = SOURCES[published.name].read(root, **SMALL)
    assert by_content(index) == by_content(published)
    assert index.recall_at == published.recall_at
    (note,) = index.notes if copy != "cars zip" else ["is read as  in"]
    assert "is read as" in note
    assert not published.notes


@EACH
def test_a_copy_is_the_same_wherever_it_is(copy, published, root, tmp_path):
    read = SOURCES[published.name].read
    here = read(root, **SMALL).fingerprint()
    moved = tmp_path / "other" / "folder"
    moved.parent.mkdir()
    root.rename(moved)
    assert read(moved, **SMALL).fingerprint() == here
    assert read(moved.parent, **SMALL).fingerprint() == here


@EACH
def test_the_published_files_are_preferred_and_it_is_said(copy, published, root):
    name = published.name
    shutil.copytree(published.root, root, dirs_exist_ok=True)
    index = SOURCES[name].read(root, **SMALL)
    assert {file.relative_to(root).parts[0] for file in index.images} == {SOURCES[name].folder}
    (note,) = index.notes
    assert "the published files in" in note
    assert ", and not " in note


@EACH
def test_an_image_that_is_missing_in_a_copy_is_counted(copy, published, root):
    read = SOURCES[published.name].read
    read(root, **SMALL).images[3].unlink()
    with pytest.raises(UserError, match=r"found 11 of 12 images .* run: dml prepare"):
        read(root, **SMALL)


def test_a_flat_folder_of_images_is_no_class_folders(tmp_path):
    """As in CARS196.zip, also with the name that Dropbox's copy has."""
    published = read_cars(TREES["cars"](tmp_path / "published"), **SMALL)
    root = cars_zip(published, tmp_path / "copy")
    assert read_cars(root, **SMALL).notes == ()
    (root / "CARS196/cars_annos.mat").unlink()
    assert find_layouts(root, SOURCES["cars"].layouts) == []
    with pytest.raises(UserError, match=r"cars_annos\.mat is missing"):
        read_cars(root, **SMALL)


@pytest.mark.parametrize("folder", ["CUB_200_2011", "cub200", "cub"])
def test_the_images_of_the_published_files_are_no_other_copy(folder, tmp_path):
    root = TREES["cub"](tmp_path)
    (root / "CUB_200_2011").rename(root / folder)
    assert read_cub(root, **SMALL).notes == ()


@pytest.mark.parametrize("copy", ["cars split folders"])
def test_a_table_without_its_images_does_not_hide_another_layout(copy, published, root):
    """One of Kaggle's copies has the published table beside the folders of classification."""
    shutil.copy(published.root / "cars196/cars_annos.mat", root / "stanford_cars")
    index = read_cars(root, **SMALL)
    assert by_content(index) == by_content(published)
    assert any("is read as the folders cars_train/ and cars_test/" in note for note in index.notes)


def reverse_names(path: Path) -> None:
    """Rewrites a table of cars so that its rows are of other files."""
    from scipy.io import loadmat, savemat

    table = loadmat(str(path))["annotations"]
    name = table.dtype.names[-1] if "fname" in table.dtype.names else "relative_im_path"
    table[name] = np.flip(table[name])
    savemat(path, {"annotations": table})


@pytest.mark.parametrize("copy", ["cars zip", "cars split folders"])
def test_tables_of_another_copy_are_refused(copy, published, root):
    """Their boxes leave the images, which have other sizes."""
    for row, file in enumerate(published.images):
        size = cars_box(row)[2:]
        for copied in root.rglob("*.[jJ][pP][gG]"):
            if copied.read_bytes() == file.read_bytes():
                save(copied, seed=row, size=size)
    read_cars(root, **SMALL)
    for path in root.rglob("*.mat"):
        reverse_names(path)
    with pytest.raises(UserError, match=r"boxes leave their image: the tables are of another copy"):
        read_cars(root, **SMALL)


MISSING = {
    "cars split folders": [
        "cars_test",
        "devkit/cars_train_annos.mat",
        "cars_test_annos_withlabels.mat",
    ],
    "cars class splits": ["car_data/test"],
    "sop info files": ["Info_Files/Ebay_test.txt"],
    "inshop drive": ["Eval/list_eval_partition.txt", "Img/img"],
}
CASES = [(copy, part) for copy, parts in MISSING.items() for part in parts]


@pytest.mark.parametrize(("copy", "part"), CASES)
def test_half_a_copy_is_one_line_on_what_is_missing(copy, part, published, root):
    paths = [path for path in root.rglob("*") if path.as_posix().endswith(f"/{part}")]
    path = min(paths, key=lambda path: len(path.parts))  # folders may be doubled
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    with pytest.raises(UserError) as caught:
        SOURCES[published.name].read(root, **SMALL)
    message = str(caught.value)
    assert "\n" not in message
    assert f"without {part}; add what is missing, or run: dml prepare" in message


@pytest.mark.parametrize("copy", ["cars class folders"])
def test_classes_of_cars_follow_their_numbers_and_not_their_names(copy, published, root):
    index = read_cars(root, **SMALL)
    folders = {}
    for file, label in zip(index.images, index.labels, strict=True):
        folders[int(label)] = file.parent.name
    assert [folders[label] for label in range(4)] == [name.replace("/", "_") for name in CARS]
    assert sorted(CARS) != list(CARS)


@pytest.mark.parametrize("copy", ["cars class folders"])
def test_unknown_names_of_cars_are_in_their_order_and_it_is_said(copy, published, root):
    classes = root / "cars196/images"
    (classes / "Acura TL Type-S 2008").rename(classes / "Z car")
    index = read_cars(root, **SMALL)
    assert index.images[-1].parent.name == "Z car"
    assert any("other folds" in note for note in index.notes)


def test_the_published_order_of_cars_is_known():
    assert len(set(NAMES)) == len(NAMES) == 196
    assert set(sorted(NAMES)[:98]) == set(NAMES[:98])  # the same split in both orders
    assert (NAMES[0], NAMES[97], NAMES[98]) == (
        "AM General Hummer SUV 2000",
        "Eagle Talon Hatchback 1998",
        "FIAT 500 Abarth 2012",
    )
    for written in ("Ram C-V Cargo Van Minivan 2012", "ram_c_v_cargo_van_minivan_2012"):
        assert order_classes([written, "Acura RL Sedan 2012"]) == ["Acura RL Sedan 2012", written]
    assert order_classes(["Acura RL Sedan 2012", "Acura_RL_Sedan_2012"]) is None
    assert order_classes(["Citroën DS", "Acura"], ["Acura", "Citroe\u0308n DS"]) == [
        "Acura",
        "Citroën DS",
    ]


@pytest.mark.parametrize("copy", ["cars zip", "cars split folders", "cars class splits"])
def test_boxes_of_cars_are_cut_to_the_pixel(copy, published, root):
    whole = {file.read_bytes(): row for row, file in enumerate(published.images)}
    index = read_cars(root, **SMALL, crop="boxes")
    assert index.name == "cars_boxes"
    for image in index.images:
        file, _ = split_box(image)
        left, top, right, bottom = cars_box(whole[file.read_bytes()])
        expected = load_image(file)[:, top:bottom, left:right]
        np.testing.assert_array_equal(load_image(image), expected)


@pytest.mark.parametrize("copy", ["cars class splits"])
def test_boxes_of_cars_are_found_by_names_in_any_case(copy, published, root):
    boxes = [split_box(image)[1] for image in read_cars(root, **SMALL, crop="boxes").images]
    assert None not in boxes
    for name, change in (("anno_train.csv", str.upper), ("anno_test.csv", str.title)):
        (root / name).write_text(change((root / name).read_text()))
    again = read_cars(root, **SMALL, crop="boxes").images
    assert [split_box(image)[1] for image in again] == boxes


@pytest.mark.parametrize("copy", ["cars class splits"])
def test_an_image_without_a_box_is_whole_and_counted(copy, published, root):
    table = root / "anno_test.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(lines[2:]))
    index = read_cars(root, **SMALL, crop="boxes")
    assert [split_box(image)[1] for image in index.images].count(None) == 2
    assert any("2 of 12 have none and stay whole" in note for note in index.notes)


@pytest.mark.parametrize("copy", ["cars class splits"])
def test_boxes_of_other_images_are_refused(copy, published, root):
    table = root / "anno_train.csv"
    names = [line.partition(",")[0] for line in table.read_text().splitlines()]
    rest = [line.partition(",")[2] for line in table.read_text().splitlines()]
    shifted = zip(names, rest[1:] + rest[:1], strict=True)
    table.write_text("\n".join(f"{name},{row}" for name, row in shifted))
    with pytest.raises(UserError, match=r"anno_train\.csv .* boxes are of other images"):
        read_cars(root, **SMALL, crop="boxes")
    read_cars(root, **SMALL)


@pytest.mark.parametrize("copy", ["cars class folders", "cub class folders"])
def test_a_copy_without_boxes_is_not_cropped(copy, published, root):
    read = {"cars": read_cars, "cub": read_cub}[published.name]
    with pytest.raises(UserError, match=r"data\.crop: class folders in .* has no published boxes"):
        read(root, **SMALL, crop="boxes")


def test_boxes_of_cub_are_x_y_width_height(tmp_path: Path):
    root = TREES["cub"](tmp_path)
    lines = [f"{number} {number}.0 2.0 20.0 23.0\n" for number in range(12, 0, -1)]
    lines[0] = "12 5.0 5.0 0.0 9.0\n"  # empty: the image stays whole
    lines[1] = "11 30.0 20.0 99.0 99.0\n"  # ends at the border of the image
    (root / "CUB_200_2011/bounding_boxes.txt").write_text("".join(lines))
    index, whole = read_cub(root, **SMALL, crop="boxes"), read_cub(root, **SMALL)
    assert index.labels.tolist() == whole.labels.tolist()
    images = [load_image(image) for image in index.images]
    pixels = [load_image(image) for image in whole.images]
    np.testing.assert_array_equal(images[2], pixels[2][:, 2:25, 3:23])
    np.testing.assert_array_equal(images[10], pixels[10][:, 20:, 30:])
    np.testing.assert_array_equal(images[11], pixels[11])
    assert "1 of 12 have none" in index.notes[0]
    assert index.fingerprint() != whole.fingerprint()


@pytest.mark.parametrize("copy", ["inshop drive"])
def test_large_images_of_inshop_are_another_dataset(copy, published, root):
    images = next(root.glob("*/Img/img"))
    images.rename(images.with_name("img_highres"))
    with pytest.raises(UserError, match=r"only img_highres/.*data\.images=highres reads them"):
        read_inshop(root, **SMALL)
    index = read_inshop(root, **SMALL, resolution="highres")
    assert index.name == "inshop_highres"
    assert by_content(index) == by_content(published)
    assert index.fingerprint() != published.fingerprint()


@pytest.mark.parametrize("copy", ["inshop drive"])
def test_images_that_are_still_packed_are_named(copy, published, root):
    images = next(root.glob("*/Img/img"))
    images.rename(tmp := root / "img")
    shutil.make_archive(str(images), "zip", tmp)
    with pytest.raises(UserError, match=r"without Img/img; unpack Img/img\.zip, add what"):
        read_inshop(root, **SMALL)


def test_large_images_that_are_not_there_are_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.images: .* has no img_highres/"):
        read_inshop(TREES["inshop"](tmp_path), **SMALL, resolution="highres")


def test_a_file_of_which_there_are_two_is_not_guessed(tmp_path: Path):
    for folder in ("a", "b"):
        save(tmp_path / folder / "1.jpg", seed=1)
    assert match_files(tmp_path, ["c/1.jpg"]) == [tmp_path / "c/1.jpg"]
    save(tmp_path / "a" / "2.JPG", seed=1)
    assert match_files(tmp_path, ["c/2.jpg"]) == [tmp_path / "a/2.JPG"]


def test_folders_of_other_datasets_are_no_copies(tmp_path: Path):
    for name, tree in TREES.items():
        if name != "cars":
            tree(tmp_path)
    assert not find_layouts(tmp_path, SOURCES["cars"].layouts)
    with pytest.raises(UserError, match=r"cars196/cars_annos\.mat is missing"):
        read_cars(tmp_path)


def test_a_missing_part_with_two_names_is_named_once(tmp_path):
    with pytest.raises(UserError) as caught:
        read_inat(tmp_path)
    assert "|" not in str(caught.value)
    assert "inat/Inat_dataset_splits/Inaturalist_train_set1.txt is missing" in str(caught.value)
