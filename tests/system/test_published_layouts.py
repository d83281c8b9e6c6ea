"""Every published layout, in miniature, in whole training runs."""

import pytest

from dml.core.errors import UserError
from dml.data.preparation.sources import SOURCES
from tests.data.copies import COPIES
from tests.data.trees import TREES, class_folders, truncate

SMALL = (
    *("protocol=traditional", "protocol.epochs=1", "data.batch_size=4", "backbone=small_cnn"),
    *("transform.size=16", "transform.test_resize=20"),
)


def options(name, root):
    counts = [] if name == "folder" else ["data.reader.images=12", "data.reader.classes=4"]
    return [f"data={name}", f"data.root={root}", *counts, *SMALL]


@pytest.fixture
def tree(tmp_path, request):
    name = request.param
    (class_folders if name == "folder" else TREES[name])(tmp_path / "data")
    return name, tmp_path / "data"


PICTURES = pytest.mark.pictures
ALL = [*sorted(TREES), "folder"]


@pytest.mark.parametrize(
    ("tree", "cache"),
    [
        *(pytest.param(name, "null", marks=PICTURES if name == "cub" else []) for name in ALL),
        *(("cub", "full"), ("inshop", "24")),
    ],
    indirect=["tree"],
)
def test_one_epoch(run_tiny, tree, cache, capsys):
    name, root = tree
    summary, folder = run_tiny(*options(name, root), f"data.cache={cache}")
    assert summary["data"] == ("data" if name == "folder" else name)
    assert summary["stand_in"] is (name != "folder")  # counts that are not the published ones
    assert summary["jobs"][0]["steps"] == 1
    recall = {key for key in summary["metrics"] if key.startswith("recall_at_")}
    published = {
        "sop": {1, 10, 100, 1000},
        "inshop": {1, 10, 20, 30},
        "inat": {1, 4, 16, 32},
    }
    known = published.get(name, {1, 2, 4, 8})
    assert recall == {f"recall_at_{k}" for k in known}
    if name == "inshop":  # one query of each of the two unseen classes searches the gallery
        assert summary["jobs"][0]["metrics"]["queries"] == 2
    assert (folder / "figures" / "neighbors.png").exists() == (name == "cub" and cache == "null")
    assert ("note: data.cache=24" in capsys.readouterr().out) == (cache == "24")


@pytest.mark.parametrize("copy", COPIES)
def test_one_epoch_on_a_copy(run_tiny, copy, tmp_path, capsys):
    name, make = COPIES[copy]
    published = SOURCES[name].read(TREES[name](tmp_path / "published"), images=12, classes=4)
    root = make(published, tmp_path / "copy")
    summary, _ = run_tiny(*options(name, root))
    assert (summary["data"], summary["jobs"][0]["steps"]) == (name, 1)
    assert ("is read as" in capsys.readouterr().out) == (copy != "cars zip")


def test_one_epoch_on_boxes_has_a_name_and_a_folder_of_its_own(run_tiny, tmp_path, capsys):
    root = TREES["cub"](tmp_path / "data")
    boxes = [f"{number} 1.0 2.0 20.0 20.0\n" for number in range(1, 13)]
    (root / "CUB_200_2011/bounding_boxes.txt").write_text("".join(boxes))
    _, whole = run_tiny(*options("cub", root))
    summary, folder = run_tiny(*options("cub", root), "data.crop=boxes")
    assert summary["data"] == "cub_boxes"
    assert folder.parent.name.startswith("cub_boxes-traditional-")
    assert whole.parent.name.startswith("cub-traditional-")
    assert "note: data.crop: images are cropped" in capsys.readouterr().out


def test_other_images_are_another_run_and_changed_ones_are_refused(run_tiny, tmp_path):
    class_folders(tmp_path / "data")
    class_folders(tmp_path / "others", classes=6)
    _, folder = run_tiny(*options("folder", tmp_path / "data"))
    _, elsewhere = run_tiny(*options("folder", tmp_path / "others"))
    assert folder != elsewhere
    assert run_tiny(*options("folder", tmp_path / "data"))[1] == folder
    next((tmp_path / "data").rglob("*.jpg")).unlink()
    with pytest.raises(UserError, match=r"other images, labels or splits .11 images.*overwrite"):
        run_tiny(*options("folder", tmp_path / "data"))
    run_tiny(*options("folder", tmp_path / "data"), "overwrite=true")


def test_corrupt_images_of_ones_own_are_listed_or_skipped(run_tiny, tmp_path):
    class_folders(tmp_path / "data")
    broken = [truncate(tmp_path / "data" / f"class_{label}" / "2.jpg") for label in (0, 3)]
    with pytest.raises(UserError, match=r"data\.skip_corrupt=true") as error:
        run_tiny(*options("folder", tmp_path / "data"))
    assert all(str(path) in str(error.value) for path in broken)
    summary, _ = run_tiny(*options("folder", tmp_path / "data"), "data.skip_corrupt=true")
    assert summary["skipped_images"] == 2
