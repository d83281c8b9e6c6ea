import hashlib
import os
import re
import shutil
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dml.core.download import Checksum
from dml.core.errors import UserError
from dml.data.preparation.prepare import prepare
from dml.data.preparation.sources import SOURCES, DatasetSource
from tests.core.servers import Behavior, failures, serving
from tests.data.trees import TREES
from tests.killed_process import KILLED, die_at


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def publish(name: str, folder: Path) -> DatasetSource:
    """Packs a small dataset into the files of the real one at `folder/site`; returns its source."""
    real, site, tree = SOURCES[name], folder / "site", folder / "tree"
    TREES[name](tree)
    site.mkdir()
    files = []
    for file in real.files:
        source, stem = tree / file.into, file.name.partition(".")[0]
        inside = real.folder if file.into == "." else stem
        if (source / file.name).is_file():
            shutil.copy(source / file.name, site)
        elif file.name.endswith(".zip"):
            shutil.make_archive(str(site / stem), "zip", source, inside)
        else:
            with tarfile.open(site / file.name, "w:gz") as tar:
                tar.add(source / inside, inside)
        digits = hashlib.md5((site / file.name).read_bytes()).hexdigest()
        files.append(replace(file, checksum=Checksum("md5", digits)))
    return replace(real, files=tuple(files), read=partial(real.read, images=12, classes=4))


def visible(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


def test_hostile_archive_leaves_nothing(root: Path, tmp_path: Path):
    cub, archive = publish("cub", tmp_path), tmp_path / "hostile.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "tree" / "CUB_200_2011", "CUB_200_2011")
        tar.add(tmp_path / "tree" / "CUB_200_2011" / "images.txt", "../escaped.txt")
    trusting = replace(cub, files=(replace(cub.files[0], checksum=None),))
    with pytest.raises(UserError, match=r"is refused: '\.\./escaped.txt'"):
        prepare(trusting, root, archives=[archive])
    assert visible(root) == []
    assert not list(tmp_path.rglob("escaped.txt"))


def test_killed_preparation_leaves_no_dataset_and_is_repeated(root: Path, tmp_path: Path):
    cars = publish("cars", tmp_path)
    archives = [tmp_path / "site" / file.name for file in cars.files]
    assert die_at("unpacked", prepare, cars, root, archives) == -9
    assert visible(root) == []
    assert (root / ".cars.unpacking").exists()
    prepare(cars, root, archives)
    assert visible(root) == ["cars196"]
    assert not (root / ".cars.unpacking").exists()


@pytest.mark.parametrize("removed", [0, 1, 2, 12, 25])
def test_a_preparation_that_is_killed_while_it_clears_up_is_repeated(
    root: Path, tmp_path: Path, removed: int
):
    cub = publish("cub", tmp_path)
    archives = [tmp_path / "site" / file.name for file in cub.files]
    assert die_at("unpacked", prepare, cub, root, archives) == KILLED

    def clear_up() -> None:
        unlink, left = os.unlink, iter(range(removed))

        def die(*arguments: Any, **options: Any) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            unlink(*arguments, **options)

        os.unlink = die
        prepare(cub, root, archives)

    assert die_at("", clear_up) in (KILLED, 0)
    prepare(cub, root, archives)
    assert visible(root) == ["CUB_200_2011"]
    assert cub.read(root).fingerprint() == cub.read(tmp_path / "tree").fingerprint()


@pytest.mark.parametrize("stopped", ["unpack", "check_images"])
def test_an_interrupted_preparation_leaves_nothing_and_is_repeated(
    root: Path, tmp_path: Path, stopped: str, monkeypatch: pytest.MonkeyPatch
):
    cars = publish("cars", tmp_path)
    archives = [tmp_path / "site" / file.name for file in cars.files]

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"dml.data.preparation.prepare.{stopped}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(cars, root, archives)
    assert visible(root) == []
    assert not (root / ".cars.unpacking").exists()
    prepare(cars, root, archives)
    assert cars.read(root).fingerprint() == cars.read(tmp_path / "tree").fingerprint()


@pytest.mark.parametrize("breaks", [0, 3])
@pytest.mark.parametrize("name", sorted(TREES))
def test_whole_way_from_a_server_that_breaks_off(name, breaks, root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dml.core.download.time.sleep", lambda seconds: None)
    dataset = publish(name, tmp_path)
    behavior = Behavior(break_after=1000, breaks=breaks)
    with serving(tmp_path / "site", behavior) as address:
        urls = [f"{address}/{file.name}?download=1" for file in dataset.files]
        for _ in range(2):
            prepare(dataset, root, urls=urls)
    said = capsys.readouterr().out.splitlines()
    assert "12 images, 4 classes" in said[-2]
    assert f"ready, train with data={name}" in said[-2]
    assert "nothing to do" in said[-1]
    assert breaks or len(behavior.requests) == len(dataset.files)
    assert visible(root) == [dataset.folder]
    assert not list(root.glob(".downloads/*"))
    here, there = dataset.read(root), dataset.read(tmp_path / "tree")
    assert here.fingerprint() == there.fingerprint()


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_a_user_has_in_the_hidden_place_stays(root: Path, tmp_path: Path, kind: str):
    cars, hidden = publish("cars", tmp_path), root / ".cars.unpacking"
    archives = [tmp_path / "site" / file.name for file in cars.files]
    mine = tmp_path / "mine"
    mine.mkdir()
    root.mkdir(exist_ok=True)
    if kind == "link":
        hidden.symlink_to(mine)
    elif kind == "folder":
        hidden.mkdir()
        (hidden / "notes.txt").write_text("mine")
    else:
        hidden.write_text("mine")
    with pytest.raises(UserError, match="is not of this command"):
        prepare(cars, root, archives)
    assert not list(mine.iterdir())
    assert hidden.is_symlink() == (kind == "link")
    assert kind != "folder" or (hidden / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", sorted(TREES))
def test_every_local_archive_is_compared_with_its_checksum(name: str, root: Path, tmp_path: Path):
    dataset = publish(name, tmp_path)
    archives = [tmp_path / "site" / file.name for file in dataset.files]
    for archive in archives:
        right = archive.read_bytes()
        archive.write_bytes(right + b"0")  # unpacks to the same images
        with pytest.raises(UserError, match=f"{re.escape(archive.name)}: md5 is"):
            prepare(dataset, root, archives)
        assert visible(root) == []
        archive.write_bytes(right)
    prepare(dataset, root, archives)
    assert visible(root) == [dataset.folder]


def test_a_local_archive_is_used_instead_of_any_address(root: Path, tmp_path: Path):
    cub = publish("cub", tmp_path)
    nowhere = f"http://127.0.0.1:9/{cub.files[0].name}"
    prepare(cub, root, archives=[tmp_path / "site" / cub.files[0].name], urls=[nowhere])
    assert visible(root) == [cub.folder]


def test_what_another_process_has_prepared_meanwhile_is_kept(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    cub = publish("cub", tmp_path)
    archives = [tmp_path / "site" / file.name for file in cub.files]

    @contextmanager
    def wait(*arguments: object) -> Iterator[None]:
        monkeypatch.undo()
        prepare(cub, root, archives)
        (root / cub.folder / "mark").touch()
        yield

    monkeypatch.setattr("dml.data.preparation.prepare.wait_for_lock", wait)
    prepare(cub, root, archives)
    assert visible(root) == [cub.folder]
    assert (root / cub.folder / "mark").exists()
    assert "nothing to do" in capsys.readouterr().out.splitlines()[-1]


def addresses_of(dataset: DatasetSource, *addresses: str) -> DatasetSource:
    """Returns the dataset with other addresses of its files, in folders of servers."""
    files = []
    for file in dataset.files:
        own = tuple(f"{address}/{file.name}" for address in addresses)
        files.append(replace(file, addresses=own))
    return replace(dataset, files=tuple(files))


@pytest.mark.parametrize("name", sorted(TREES))
def test_every_dataset_has_addresses_and_the_next_one_delivers(name, root, tmp_path, capsys):
    assert all(file.addresses for file in SOURCES[name].files)
    dataset, page = publish(name, tmp_path), Behavior(content=b"<html><title>Moved</title>")
    with serving(tmp_path / "site", page) as first, serving(tmp_path / "site", Behavior()) as next_:
        prepare(addresses_of(dataset, first, next_), root)
    lines = capsys.readouterr().out.splitlines()
    left = [line for line in lines if "a web page (Moved), not the file; trying" in line]
    assert len(left) == len(dataset.files)
    assert visible(root) == [dataset.folder]


@pytest.mark.parametrize("name", ["cars", "inshop"])
def test_addresses_of_several_files_are_named_or_what_is_left(name, root, tmp_path):
    dataset = publish(name, tmp_path)
    first, second = dataset.files
    site = tmp_path / "site"
    with serving(site, Behavior()) as address:
        for file in (first, second):  # as Drive names them
            (site / f"uc-{file.name}").write_bytes((site / file.name).read_bytes())
        drive = {
            file.name: f"{address}/uc-{file.name}?id=a=b&confirm=t" for file in (first, second)
        }
        for urls in ([drive[first.name]], [*drive.values()]):
            with pytest.raises(UserError, match=r"--url <file>=<address> says which one it is$"):
                prepare(addresses_of(dataset), root, urls=urls)
        choices = [
            [f"{name}={url}" for name, url in drive.items()],
            [f"{first.name}={drive[first.name]}", drive[second.name]],
            [drive[second.name], f"{address}/{first.name}"],
        ]
        for urls in choices:
            prepare(addresses_of(dataset), root, urls=urls)
            assert visible(root) == [dataset.folder]
            shutil.rmtree(root)
        prepare(addresses_of(dataset), root, [site / first.name], [drive[second.name]])
    assert visible(root) == [dataset.folder]


def test_a_mirror_has_the_files_by_name(root, tmp_path, monkeypatch):
    for name in ("cub", "inshop"):
        folder = tmp_path / name
        folder.mkdir()
        dataset = publish(name, folder)
        monkeypatch.setenv("DML_MIRROR", str(folder / "site"))
        prepare(addresses_of(dataset, "http://127.0.0.1:9"), root)
        assert (root / dataset.folder).is_dir()


def test_a_wrong_file_without_a_checksum_is_received_again(root, tmp_path):
    published = publish("inshop", tmp_path)
    files = tuple(replace(file, checksum=None) for file in published.files)
    dataset = replace(published, files=files)
    partition = tmp_path / "site" / "list_eval_partition.txt"
    right = partition.read_bytes()
    partition.write_bytes(right.replace(b"train", b"other"))
    with serving(tmp_path / "site", Behavior()) as address:
        with pytest.raises(UserError, match="this is not the published inshop"):
            prepare(addresses_of(dataset, address), root)
        partition.write_bytes(right)
        prepare(addresses_of(dataset, address), root)
    assert visible(root) == [dataset.folder]


def test_where_no_address_has_a_file_the_message_has_all_that_is_needed(root, tmp_path):
    dataset = addresses_of(publish("cub", tmp_path), "http://127.0.0.1:9", "http://127.0.0.1:10")
    with pytest.raises(UserError) as caught:
        prepare(dataset, root)
    (file,) = dataset.files
    message = str(caught.value)
    for part in (*file.addresses, file.checksum.digits, file.home, "--archive", "--url"):
        assert part in message
    assert "--archive" in message.splitlines()[-1]


@pytest.mark.parametrize("failure", [*failures(b""), "dead"])
@pytest.mark.parametrize("name", ["cub", "cars"])
def test_an_address_of_the_user_that_fails_is_named_and_another_one_continues(
    name, failure, root, tmp_path, monkeypatch
):
    monkeypatch.setattr("dml.core.download.SILENT_SECONDS", 1)
    published = publish(name, tmp_path)
    sized = []
    for file in published.files:
        size = (tmp_path / "site" / file.name).stat().st_size
        sized.append(replace(file, checksum=replace(file.checksum, size=size)))
    dataset = replace(published, files=tuple(sized))
    file = dataset.files[-1]
    content = (tmp_path / "site" / file.name).read_bytes()
    behavior, reason = failures(content).get(failure, (Behavior(), "Connection refused"))
    others = [tmp_path / "site" / other.name for other in dataset.files[:-1]]
    with (
        serving(tmp_path / "site", behavior) as bad,
        serving(tmp_path / "site", Behavior()) as good,
    ):
        address = "http://127.0.0.1:9" if failure == "dead" else bad
        with pytest.raises(UserError, match=reason) as caught:
            prepare(dataset, root, others, [f"{file.name}={address}/{file.name}"])
        assert f"{address}/{file.name}" in str(caught.value)
        assert visible(root) == []
        prepare(dataset, root, others, [f"{file.name}={good}/{file.name}"])
    assert visible(root) == [dataset.folder]


@pytest.mark.parametrize("name", sorted(TREES))
def test_a_file_that_was_placed_by_hand_is_compared_with_its_checksum(name, root, tmp_path):
    dataset = addresses_of(publish(name, tmp_path), "http://127.0.0.1:9")
    placed = root / ".downloads"
    placed.mkdir(parents=True)
    for file in dataset.files:
        shutil.copy(tmp_path / "site" / file.name, placed)
    last = placed / dataset.files[-1].name
    right = last.read_bytes()
    last.write_bytes(right + b"0")
    with pytest.raises(UserError, match=f"{re.escape(str(last))}: md5 is .*, published is"):
        prepare(dataset, root)
    assert last.read_bytes() == right + b"0"
    last.write_bytes(right)
    prepare(dataset, root)
    assert visible(root) == [dataset.folder]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("car_im.tgz=http://127.0.0.1:9/x", r"cars has no file car_im.tgz; did you mean 'car_ims"),
        ("x.bin=http://127.0.0.1:9/x", r"cars has no file x.bin; its files are .*cars_annos.mat"),
        ("", "--url '': not an address such as https://"),
        ("car_ims.tgz=", "--url '': not an address such as https://"),
        ("127.0.0.1:9/car_ims.tgz", "not an address such as https://"),
        ("htp://127.0.0.1:9/car_ims.tgz", "not an address such as https://"),
        ("/disk/car_ims.tgz", "a file is given by --archive"),
        ("http://127.0.0.1:9/a b", "not an address such as https://"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_downloaded(root, url, message, capsys):
    with pytest.raises(UserError, match=message):
        prepare(SOURCES["cars"], root, urls=[url])
    assert "downloading" not in capsys.readouterr().out


def test_a_single_address_that_fails_names_the_checksum_and_what_else_helps(root, tmp_path):
    dataset = addresses_of(publish("cub", tmp_path), "http://127.0.0.1:9")
    (file,) = dataset.files
    with pytest.raises(UserError) as caught:
        prepare(dataset, root)
    for part in (file.checksum.digits, file.home, "--archive <file>", "--url CUB_200_2011.tgz="):
        assert part in str(caught.value)


def test_a_file_placed_by_hand_that_differs_is_named_with_what_helps(root, tmp_path, capsys):
    dataset = addresses_of(publish("cub", tmp_path), "http://127.0.0.1:9")
    placed = root / ".downloads" / "CUB_200_2011.tgz"
    placed.parent.mkdir(parents=True)
    placed.write_bytes(b"another file")
    advice = rf"remove {placed} and run the same command again; .*--archive <file>"
    with pytest.raises(UserError, match=advice) as caught:
        prepare(dataset, root)
    assert str(caught.value).count("again") == 1
    assert placed.read_bytes() == b"another file"
    assert "downloading" not in capsys.readouterr().out
