import hashlib
import os
from pathlib import Path

import pytest

from dml.core.download import ATTEMPTS, Checksum, ChecksumError, download
from dml.core.errors import UserError
from tests.core.servers import Behavior, serving

CONTENT = os.urandom(300_000)
MD5 = Checksum("md5", hashlib.md5(CONTENT).hexdigest())
SHA256 = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest()[:10])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "data.bin").write_bytes(CONTENT)
    return folder


def test_broken_connection_is_taken_up_where_it_broke(site: Path, tmp_path: Path):
    behavior = Behavior(break_after=100_000, breaks=2)
    with serving(site, behavior) as address:
        target = download(f"{address}/data.bin", tmp_path / "data.bin", MD5, pause=0)
    assert target.read_bytes() == CONTENT
    assert behavior.requests == [None, "bytes=100000-", "bytes=200000-"]


def test_another_call_continues_what_an_earlier_one_left(site: Path, tmp_path: Path):
    (tmp_path / "data.bin.partial").write_bytes(CONTENT[:123])
    behavior = Behavior()
    with serving(site, behavior) as address:
        target = download(f"{address}/data.bin", tmp_path / "data.bin", MD5)
    assert target.read_bytes() == CONTENT
    assert behavior.requests == ["bytes=123-"]


def test_server_that_cannot_continue_is_asked_for_all_of_it(site: Path, tmp_path: Path):
    (tmp_path / "data.bin.partial").write_bytes(b"x" * 123)
    with serving(site, Behavior(ranges=False)) as address:
        target = download(f"{address}/data.bin", tmp_path / "data.bin", MD5)
    assert target.read_bytes() == CONTENT


LEFT = {
    "nothing": None,
    "a part": CONTENT[:1000],
    "all of it": CONTENT,
    "part of another file": b"x" * 1000,
    "a longer file": b"x" * (len(CONTENT) + 1),
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("checksum", [None, MD5, SHA256])
def test_whatever_was_left_the_file_is_that_of_the_server(
    site: Path, tmp_path: Path, checksum: Checksum | None, ranges: bool, left: str
):
    target, content = tmp_path / "data.bin", LEFT[left]
    if content is not None:
        (tmp_path / "data.bin.partial").write_bytes(content)
    behavior = Behavior(break_after=2000, breaks=1, ranges=ranges)
    with serving(site, behavior) as address:
        try:
            download(f"{address}/data.bin", target, checksum, pause=0)
        except ChecksumError:  # what was left is of another file, and deleted
            assert checksum is not None
            assert not target.exists()
            download(f"{address}/data.bin", target, checksum, pause=0)
    assert target.read_bytes() == CONTENT


def test_a_file_that_exists_is_compared_with_its_checksum(tmp_path: Path):
    target = tmp_path / "data.bin"
    target.write_bytes(b"x" * 1000)
    nowhere = "http://127.0.0.1:9/data.bin"
    with pytest.raises(ChecksumError, match=r"data\.bin: md5 is .* damaged or another one"):
        download(nowhere, target, MD5)
    assert download(nowhere, target) == target
    target.write_bytes(CONTENT)
    assert download(nowhere, target, MD5) == target


def test_connection_that_never_gets_on_gives_up_and_says_how_to_go_on(site: Path, tmp_path: Path):
    behavior = Behavior(break_after=0, breaks=99)
    with (
        serving(site, behavior) as address,
        pytest.raises(UserError, match=r"broke off \(0\.0 MB received\); run the same"),
    ):
        download(f"{address}/data.bin", tmp_path / "data.bin", MD5, pause=0)
    assert len(behavior.requests) == ATTEMPTS
    with serving(site, behavior) as address, pytest.raises(UserError, match="404 Not Found; run"):
        download(f"{address}/missing.bin", tmp_path / "missing.bin", MD5, pause=0)
    with pytest.raises(UserError, match=r"refused.* \(0\.0 MB received\); run the same"):
        download("http://127.0.0.1:9/data.bin", tmp_path / "data.bin", MD5, pause=0)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_file_with_another_checksum_is_deleted(site: Path, tmp_path: Path, algorithm: str):
    right = {"md5": MD5, "sha256": SHA256}[algorithm]
    wrong = Checksum(algorithm, "0" * len(right.digits))
    with (
        serving(site, Behavior()) as address,
        pytest.raises(ChecksumError, match=f": {algorithm} is {right.digits}, published is 0+:"),
    ):
        download(f"{address}/data.bin", tmp_path / "data.bin", wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("more", [0, 1])
def test_file_ends_at_the_published_size(site: Path, tmp_path: Path, length: bool, more: int):
    (site / "data.bin").write_bytes(CONTENT + b"x" * more)
    published = Checksum("md5", MD5.digits, len(CONTENT))
    target = tmp_path / "data.bin"
    with serving(site, Behavior(length=length)) as address:
        if not more:
            assert download(f"{address}/data.bin", target, published).read_bytes() == CONTENT
            return
        with pytest.raises(UserError, match=f"more than the published {len(CONTENT):,} bytes"):
            download(f"{address}/data.bin", target, published)
    assert not target.exists()
    assert (tmp_path / "data.bin.partial").stat().st_size == 0


def test_server_that_never_ends_is_cut_off(site: Path, tmp_path: Path):
    published = Checksum("md5", MD5.digits, len(CONTENT))
    endless = Behavior(length=False, endless=True)
    with serving(site, endless) as address, pytest.raises(UserError, match="more than the"):
        download(f"{address}/data.bin", tmp_path / "data.bin", published, pause=0)
    assert len(endless.requests) == 1


@pytest.mark.parametrize("published", [None, MD5])
def test_server_that_never_ends_is_cut_off_without_a_published_size(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Checksum | None
):
    monkeypatch.setattr("dml.core.download.MOST_BYTES", 3 * len(CONTENT))
    endless = Behavior(length=False, endless=True)
    with serving(site, endless) as address, pytest.raises(UserError, match=r"more than [0-9]"):
        download(f"{address}/data.bin", tmp_path / "data.bin", published, pause=0)
    assert len(endless.requests) == 1


def test_connection_without_a_length_that_breaks_is_taken_up(site: Path, tmp_path: Path):
    published = Checksum("md5", MD5.digits, len(CONTENT))
    behavior = Behavior(break_after=100, breaks=1, length=False)
    with serving(site, behavior) as address:
        target = download(f"{address}/data.bin", tmp_path / "data.bin", published, pause=0)
    assert target.read_bytes() == CONTENT
    assert behavior.requests == [None, "bytes=100-"]
