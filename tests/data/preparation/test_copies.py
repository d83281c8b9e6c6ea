"""`prepare --archive` of copies in other layouts: folders, archives and several of them."""

import shutil
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.preparation.prepare import prepare
from dml.data.preparation.sources import SOURCES, DatasetSource
from tests.data.copies import COPIES
from tests.data.readers.test_layouts import by_content
from tests.data.trees import TREES, truncate
from tests.killed_process import die_at

EACH = pytest.mark.parametrize("copy", COPIES)
SMALL = {"images": 12, "classes": 4}


@pytest.fixture
def dataset(copy: str) -> DatasetSource:
    real = SOURCES[COPIES[copy][0]]
    return replace(real, read=partial(real.read, **SMALL))


@pytest.fixture
def published(dataset: DatasetSource, tmp_path: Path) -> ImageIndex:
    return dataset.read(TREES[dataset.name](tmp_path / "published"))


@pytest.fixture
def tree(copy: str, published: ImageIndex, tmp_path: Path) -> Path:
    return COPIES[copy][1](published, tmp_path / "copy")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def pack(tree: Path, ending: str) -> Path:
    return Path(shutil.make_archive(str(tree.parent / "any name"), ending, tree))


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


@EACH
@pytest.mark.parametrize("form", ["folder", "zip", "tar"])
def test_a_copy_is_prepared(copy, form, dataset, published, tree, root, capsys):
    archive = tree if form == "folder" else pack(tree, form)
    for _ in range(2):
        prepare(dataset, root, [archive])
    assert by_content(dataset.read(root)) == by_content(published)
    (folder,) = visible(root)
    is_published = copy == "cars zip"
    assert folder == (dataset.folder if is_published else f"{dataset.name}_copy")
    said = capsys.readouterr().out
    assert f"ready, train with data={dataset.name}\n" in said
    assert "counts and the decoding were the check" in said
    assert ("is read as" in said) != is_published
    assert said.splitlines()[-1].endswith("nothing to do")
    if form == "folder":
        assert tree.exists()


@pytest.mark.parametrize("copy", ["cars split folders"])
def test_archives_that_have_a_dataset_together(copy, dataset, published, tree, root):
    home = tree / "stanford_cars"
    archives = [home / "cars_test_annos_withlabels.mat"]
    for name in ("cars_train", "cars_test", "devkit"):
        archives.append(tree / f"{name}.tgz")
        with tarfile.open(archives[-1], "w:gz") as tar:
            tar.add(home / name, name)
    with pytest.raises(UserError, match=r"without cars_test; add what is missing") as caught:
        prepare(dataset, root, [*archives[:2], archives[3]])
    assert "\n" not in str(caught.value)
    assert visible(root) == []
    prepare(dataset, root, archives)
    assert by_content(dataset.read(root)) == by_content(published)


@pytest.mark.parametrize("copy", ["inshop drive"])
def test_packed_images_in_the_folder_of_the_drive(copy, dataset, published, tree, root):
    images = next(tree.glob("*/Img/img"))
    shutil.make_archive(str(images), "zip", images.parent, "img")
    shutil.rmtree(images)
    prepare(dataset, root, [images.parents[1]])
    assert visible(root) == ["inshop"]
    assert by_content(dataset.read(root)) == by_content(published)


@pytest.mark.parametrize("copy", ["inshop drive"])
def test_large_images_are_prepared_for_their_option(copy, dataset, published, tree, root, capsys):
    images = next(tree.glob("*/Img/img"))
    images.rename(images.with_name("img_highres"))
    prepare(dataset, root, [tree])
    assert "train with data=inshop data.images=highres\n" in capsys.readouterr().out
    assert dataset.read(root).name == "inshop_highres"
    prepare(dataset, root, [tree])
    assert "nothing to do" in capsys.readouterr().out
    home = published.root / "inshop"
    shutil.make_archive(str(home / "img"), "zip", home, "img")
    prepare(dataset, root, [home])  # those of the papers are still missing
    assert visible(root) == ["inshop", "inshop_copy"]
    assert dataset.read(root).name == "inshop"


@EACH
def test_a_damaged_image_of_a_copy_leaves_nothing(copy, dataset, tree, root):
    image = dataset.read(tree).images[5]
    truncate(image)
    with pytest.raises(UserError, match=f"this is not the published {dataset.name}") as caught:
        prepare(dataset, root, [tree])
    assert visible(root) == []
    message = str(caught.value)
    assert message.startswith(f"--archive {tree}: ")
    assert image.name in message
    assert ".unpacking" not in message
    assert "download" not in message
    assert message.endswith("; add what is missing or damaged, or take another copy")


@EACH
def test_a_missing_image_of_a_copy_is_named_in_the_folder(copy, dataset, tree, root):
    dataset.read(tree).images[5].unlink()
    with pytest.raises(UserError, match="is not complete: found 11 of 12 images") as caught:
        prepare(dataset, root, [tree])
    message = str(caught.value)
    assert message.startswith(f"--archive {tree}: this is not the published {dataset.name}: ")
    assert ".unpacking" not in message
    assert "download" not in message


@pytest.mark.parametrize("copy", ["cub class folders"])
def test_a_killed_copy_leaves_nothing_and_is_repeated(copy, dataset, tree, root):
    assert die_at("unpacked", prepare, dataset, root, [tree]) == -9
    assert visible(root) == []
    prepare(dataset, root, [tree])
    assert visible(root) == ["cub_copy"]


@pytest.mark.parametrize("copy", ["sop info files"])
def test_a_folder_without_any_layout_is_one_line(copy, dataset, root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match=r"has no Stanford_Online_Products\.zip") as caught:
        prepare(dataset, root, [other])
    assert "\n" not in str(caught.value)
    assert "Info_Files/Ebay_train.txt" in str(caught.value)


@pytest.mark.parametrize("copy", ["cub class folders"])
def test_the_rest_of_a_folder_is_not_copied(copy, dataset, tree, root):
    (tree / "film.mp4").write_bytes(b"0")
    (tree / "cub200" / "__MACOSX").mkdir()
    prepare(dataset, root, [tree])
    assert [path.name for path in (root / "cub_copy").iterdir()] == ["images"]
