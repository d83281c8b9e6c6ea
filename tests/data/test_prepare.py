import hashlib
import shutil
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.cars import read_cars
from dml.data.cub import read_cub
from dml.data.prepare import prepare
from dml.data.sources import SOURCES, DatasetSource
from tests.core.servers import Behavior, serving
from tests.data.trees import TREES, cars_tree, cub_tree
from tests.killed_process import die_at


def pack(tree: Path, archive: Path) -> str:
    """Packs the content of a folder; returns the archive's md5."""
    with tarfile.open(archive, "w:gz") as tar:
        for entry in sorted(tree.iterdir()):
            tar.add(entry, entry.name)
    return hashlib.md5(archive.read_bytes()).hexdigest()


@pytest.fixture
def cub(tmp_path: Path) -> DatasetSource:
    """A small CUB, packed at `tmp_path/site`."""
    (tmp_path / "site").mkdir()
    md5 = pack(cub_tree(tmp_path / "tree"), tmp_path / "site" / "CUB_200_2011.tgz")
    (file,) = SOURCES["cub"].files
    return replace(
        SOURCES["cub"],
        files=(replace(file, md5=md5),),
        read=partial(read_cub, images=12, classes=4),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


def hidden(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith("."))


def test_table_covers_the_published_layouts():
    assert set(SOURCES) == set(TREES)
    for name, dataset in SOURCES.items():
        assert dataset.name == name
        assert (dataset.build is None) == (name in TREES)
        assert all(file.md5 is None or len(file.md5) == 32 for file in dataset.files)


def test_download_is_unpacked_once_and_the_archive_deleted(
    cub: DatasetSource, root: Path, tmp_path: Path
):
    behavior, said = Behavior(), []
    with serving(tmp_path / "site", behavior) as address:
        urls = [f"{address}/CUB_200_2011.tgz"]
        prepare(cub, root, urls=urls, say=said.append)
        assert "12 images, 4 classes" in said[-1]
        assert "train with data=cub" in said[-1]
        prepare(cub, root, urls=urls, say=said.append)
    assert "nothing to do" in said[-1]
    assert len(behavior.requests) == 1
    assert visible(root) == ["CUB_200_2011"]
    assert not list((root / ".downloads").iterdir())
    assert len(cub.read(root).images) == 12


def test_download_that_broke_off_leaves_no_dataset_and_continues(
    cub: DatasetSource, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dml.core.download.time.sleep", lambda seconds: None)
    site = tmp_path / "site"
    half = (site / "CUB_200_2011.tgz").stat().st_size // 2
    behavior = Behavior(break_after=half, breaks=1)
    with serving(site, behavior) as address:
        urls = [f"{address}/CUB_200_2011.tgz"]
        monkeypatch.setattr("dml.core.download.ATTEMPTS", 0)
        with pytest.raises(UserError, match="run the same command again"):
            prepare(cub, root, urls=urls)
        assert visible(root) == []
        monkeypatch.undo()
        prepare(cub, root, urls=urls)
    assert behavior.requests == [None, f"bytes={half}-"]
    assert visible(root) == ["CUB_200_2011"]


def test_hostile_archive_leaves_nothing(cub: DatasetSource, root: Path, tmp_path: Path):
    archive = tmp_path / "hostile.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "tree" / "CUB_200_2011", "CUB_200_2011")
        tar.add(tmp_path / "tree" / "CUB_200_2011" / "images.txt", "../escaped.txt")
    trusting = replace(cub, files=(replace(cub.files[0], md5=None),))
    with pytest.raises(UserError, match=r"refused, '\.\./escaped.txt'"):
        prepare(trusting, root, archives=[archive])
    assert visible(root) == []
    assert hidden(root) == [".cub.lock"]
    assert not list(tmp_path.rglob("escaped.txt"))


def test_killed_preparation_leaves_no_dataset_and_is_repeated(root: Path, tmp_path: Path):
    cars_tree(tmp_path / "cars")
    archives = [tmp_path / "car_ims.tgz", tmp_path / "cars" / "cars196" / "cars_annos.mat"]
    with tarfile.open(archives[0], "w:gz") as tar:
        tar.add(tmp_path / "cars" / "cars196" / "car_ims", "car_ims")
    cars = replace(
        SOURCES["cars"],
        files=tuple(replace(file, md5=None) for file in SOURCES["cars"].files),
        read=partial(read_cars, images=12, classes=4),
    )
    assert die_at("unpacked", prepare, cars, root, archives) == -9
    assert visible(root) == []
    assert ".cars.unpacking" in hidden(root)
    prepare(cars, root, archives)
    assert visible(root) == ["cars196"]
    assert hidden(root) == [".cars.lock"]


def test_place_that_cannot_be_written_is_named(cub: DatasetSource, tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"^data\.root: cannot write under .*/file "):
        prepare(cub, tmp_path / "file", archives=[tmp_path / "site" / "CUB_200_2011.tgz"])


def test_dataset_behind_a_login_says_which_file_to_get(root: Path, tmp_path: Path):
    with pytest.raises(UserError) as raised:
        prepare(SOURCES["inshop"], root)
    message = str(raised.value)
    assert "img.zip: In-shop Clothes Retrieval Benchmark/Img/img.zip" in message
    assert message.endswith(
        f"and run: python scripts/prepare_data.py inshop --root {root} "
        f"--archive img.zip --archive list_eval_partition.txt"
    )
    (other := tmp_path / "x.zip").touch()
    with pytest.raises(UserError, match=r"x\.zip: cars needs car_ims\.tgz and cars_annos"):
        prepare(SOURCES["cars"], root, archives=[other])
    with pytest.raises(UserError, match=r"--archive x\.tgz does not exist"):
        prepare(SOURCES["cub"], root, archives=[Path("x.tgz")])


def publish(name: str, site: Path, tree: Path) -> DatasetSource:
    """Packs a small dataset into the files of the real one; returns how it is made ready."""
    real = SOURCES[name]
    TREES[name](tree)
    site.mkdir()
    for file in real.files:
        source, stem = tree / file.into, Path(file.name).stem
        inside = real.folder if file.into == "." else stem
        if (source / file.name).is_file():
            shutil.copy(source / file.name, site)
        elif file.name.endswith(".zip"):
            shutil.make_archive(str(site / stem), "zip", source, inside)
        else:
            with tarfile.open(site / file.name, "w:gz") as tar:
                tar.add(source / inside, inside)
    files = tuple(replace(file, md5=None) for file in real.files)
    return replace(real, files=files, read=partial(real.read, images=12, classes=4))


@pytest.mark.parametrize("breaks", [0, 3])
@pytest.mark.parametrize("name", sorted(TREES))
def test_whole_way_from_a_server_that_breaks_off(
    name: str, breaks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("dml.core.download.time.sleep", lambda seconds: None)
    dataset = publish(name, tmp_path / "site", tmp_path / "tree")
    root, said = tmp_path / "data", []
    behavior = Behavior(break_after=1000, breaks=breaks)
    with serving(tmp_path / "site", behavior) as address:
        urls = [f"{address}/{file.name}?download=1" for file in dataset.files]
        prepare(dataset, root, urls=urls, say=said.append)
        prepare(dataset, root, urls=urls, say=said.append)
    assert "ready, train with" in said[-2]
    assert "nothing to do" in said[-1]
    assert [path.name for path in root.iterdir() if path.name[0] != "."] == [dataset.folder]
    here, there = dataset.read(root), dataset.read(tmp_path / "tree")
    assert here.fingerprint() == there.fingerprint()
