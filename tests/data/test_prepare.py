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


def test_a_failed_download_leaves_no_folder(cub: DatasetSource, root: Path, tmp_path: Path):
    with serving(tmp_path / "site", Behavior()) as address, pytest.raises(UserError, match="404"):
        prepare(cub, root, urls=[f"{address}/missing.tgz"])
    assert not root.exists()


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
    assert not list(root.glob(".downloads/*"))
    assert len(cub.read(root).images) == 12


def test_hostile_archive_leaves_nothing(cub: DatasetSource, root: Path, tmp_path: Path):
    archive = tmp_path / "hostile.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "tree" / "CUB_200_2011", "CUB_200_2011")
        tar.add(tmp_path / "tree" / "CUB_200_2011" / "images.txt", "../escaped.txt")
    trusting = replace(cub, files=(replace(cub.files[0], md5=None),))
    with pytest.raises(UserError, match=r"refused, '\.\./escaped.txt'"):
        prepare(trusting, root, archives=[archive])
    assert not root.exists()
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
