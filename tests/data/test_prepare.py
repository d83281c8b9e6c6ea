import hashlib
import importlib.util
import shutil
import tarfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from dml.core.errors import UserError
from dml.data.cars import read_cars
from dml.data.cub import read_cub
from dml.data.digits import read_digits
from dml.data.prepare import prepare, undecodable
from dml.data.sources import DATASETS, Published
from tests.data.servers import Behavior, serving
from tests.data.trees import TREES, cars_tree, class_folders, cub_tree, truncate
from tests.killed_process import die_at

REPOSITORY = Path(__file__).parents[2]


def pack(tree: Path, archive: Path) -> str:
    """Packs the content of a folder; returns the archive's md5."""
    with tarfile.open(archive, "w:gz") as tar:
        for entry in sorted(tree.iterdir()):
            tar.add(entry, entry.name)
    return hashlib.md5(archive.read_bytes()).hexdigest()


@pytest.fixture
def cub(tmp_path: Path) -> Published:
    """A small CUB, packed at `tmp_path/site`."""
    (tmp_path / "site").mkdir()
    md5 = pack(cub_tree(tmp_path / "tree"), tmp_path / "site" / "CUB_200_2011.tgz")
    (file,) = DATASETS["cub"].files
    return replace(
        DATASETS["cub"],
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
    assert set(DATASETS) == set(TREES)
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert all(file.md5 is None or len(file.md5) == 32 for file in dataset.files)


def test_download_is_unpacked_once_and_the_archive_deleted(
    cub: Published, root: Path, tmp_path: Path
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
    cub: Published, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_wrong_checksum_leaves_nothing(cub: Published, root: Path, tmp_path: Path):
    other = replace(cub, files=(replace(cub.files[0], md5="0" * 32),))
    with (
        serving(tmp_path / "site", Behavior()) as address,
        pytest.raises(UserError, match="md5 is"),
    ):
        prepare(other, root, urls=[f"{address}/CUB_200_2011.tgz"])
    assert visible(root) == []
    assert not list((root / ".downloads").iterdir())
    with pytest.raises(UserError, match="md5 is"):
        prepare(other, root, archives=[tmp_path / "site" / "CUB_200_2011.tgz"])
    assert (tmp_path / "site" / "CUB_200_2011.tgz").exists(), "a user's own file is never deleted"


def test_hostile_archive_leaves_nothing(cub: Published, root: Path, tmp_path: Path):
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


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (Path.unlink, "not the published CUB-200-2011: .* found 11 of 12 images"),
        (truncate, r"Bird_2_0002.jpg: (?s:.*)holds damaged images"),
    ],
)
def test_archive_with_a_missing_or_damaged_image_leaves_nothing(
    cub: Published, root: Path, tmp_path: Path, harm, message: str
):
    harm(next((tmp_path / "tree").rglob("Bird_2_0002.jpg")))
    md5 = pack(tmp_path / "tree", tmp_path / "bad.tgz")
    bad = replace(cub, files=(replace(cub.files[0], md5=md5),))
    with pytest.raises(UserError, match=message) as raised:
        prepare(bad, root, archives=[tmp_path / "bad.tgz"])
    assert ".unpacking" not in str(raised.value)
    assert visible(root) == []
    assert hidden(root) == [".cub.lock"]


def test_killed_preparation_leaves_no_dataset_and_is_repeated(root: Path, tmp_path: Path):
    cars_tree(tmp_path / "cars")
    archives = [tmp_path / "car_ims.tgz", tmp_path / "cars" / "cars196" / "cars_annos.mat"]
    with tarfile.open(archives[0], "w:gz") as tar:
        tar.add(tmp_path / "cars" / "cars196" / "car_ims", "car_ims")
    cars = replace(
        DATASETS["cars"],
        files=tuple(replace(file, md5=None) for file in DATASETS["cars"].files),
        read=partial(read_cars, images=12, classes=4),
    )
    assert die_at("unpacked", prepare, cars, root, archives) == -9
    assert visible(root) == []
    assert ".cars.unpacking" in hidden(root)
    prepare(cars, root, archives)
    assert visible(root) == ["cars196"]
    assert hidden(root) == [".cars.lock"]


def test_incomplete_folder_is_put_aside_and_not_deleted(cub: Published, root: Path, tmp_path: Path):
    said: list[str] = []
    shutil.copytree(tmp_path / "tree", root)
    next(root.rglob("Bird_1_0001.jpg")).unlink()
    prepare(cub, root, archives=[tmp_path / "site" / "CUB_200_2011.tgz"], say=said.append)
    assert visible(root) == ["CUB_200_2011", "CUB_200_2011.incomplete-1"]
    assert len(list((root / "CUB_200_2011.incomplete-1").rglob("*.jpg"))) == 11
    assert "CUB_200_2011.incomplete-1" in said[-2]
    assert len(cub.read(root).images) == 12


def test_place_that_cannot_be_written_is_named(cub: Published, tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"^data\.root: cannot write under .*/file "):
        prepare(cub, tmp_path / "file", archives=[tmp_path / "site" / "CUB_200_2011.tgz"])


def test_two_preparations_at_once_do_the_work_once(cub: Published, root: Path, tmp_path: Path):
    behavior, said = Behavior(), []
    with serving(tmp_path / "site", behavior) as address:
        urls = [f"{address}/CUB_200_2011.tgz"]
        threads = [
            threading.Thread(target=prepare, args=(cub, root, (), urls, said.append))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(behavior.requests) == 1
    assert sum("nothing to do" in line for line in said) == 1


def test_dataset_behind_a_login_says_which_file_to_get(root: Path):
    with pytest.raises(UserError) as raised:
        prepare(DATASETS["inshop"], root)
    message = str(raised.value)
    assert "img.zip: In-shop Clothes Retrieval Benchmark/Img/img.zip" in message
    assert message.endswith(
        f"and run: python scripts/prepare_data.py inshop --root {root} "
        f"--archive img.zip --archive list_eval_partition.txt"
    )
    with pytest.raises(
        UserError, match=r"--archive x\.zip: cars needs car_ims\.tgz and cars_annos"
    ):
        prepare(DATASETS["cars"], root, archives=[Path("x.zip")])
    with pytest.raises(UserError, match=r"--archive x\.tgz: no such file"):
        prepare(DATASETS["cub"], root, archives=[Path("x.tgz")])


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "prepare_data", REPOSITORY / "scripts" / "prepare_data.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_check_decodes_every_image_and_names_the_bad_ones(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    class_folders(tmp_path)
    command = ["folder", "--root", str(tmp_path), "--check"]
    assert script.main(command) == 0
    assert "all 12 images" in capsys.readouterr().out
    bad = [truncate(tmp_path / "class_1" / "2.jpg"), tmp_path / "class_3" / "0.jpg"]
    bad[1].write_text("no image")
    assert script.main(command) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 3
    assert str(bad[0]) in error[0]
    assert str(bad[1]) in error[1]
    assert error[2] == "folder: 2 images are damaged; get them again"


def test_check_of_a_partial_benchmark_counts(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cub_tree(tmp_path)
    assert script.main(["cub", "--check", "--root", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "found 12 of 11788 images" in error


def test_script_prepares_what_needs_no_download(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert script.main(["digits", "--root", str(tmp_path)]) == 0
    assert "1,797 images, nothing to download" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cup"], "no 'cup'; did you mean 'cub'?"),
        (["zebra"], "no 'zebra'; one of cub, cars, sop, inshop, glyphs, digits, folder"),
        (["folder", "--archive", "x.zip"], "--url are for preparing cub, cars, sop, inshop; leave"),
        (["digits", "--url", "http://x"], "--archive and --url are for preparing"),
        (["cub", "--check", "--archive", "x.tgz"], "--archive and --url are for preparing"),
    ],
)
def test_command_that_makes_no_sense_is_explained(
    script: ModuleType, command: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stopped:
        script.main(command)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_images_in_memory_have_nothing_to_decode():
    assert undecodable(read_digits()) == []
