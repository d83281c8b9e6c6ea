import hashlib
import os
from pathlib import Path

import pytest

from dml.core.download import ATTEMPTS, fetch
from dml.core.errors import UserError
from tests.data.servers import Behavior, serving

CONTENT = os.urandom(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "data.bin").write_bytes(CONTENT)
    return folder


def test_file_arrives_whole_and_is_fetched_once(site: Path, tmp_path: Path):
    behavior, target = Behavior(), tmp_path / "down" / "data.bin"
    with serving(site, behavior) as address:
        for _ in range(2):
            assert fetch(f"{address}/data.bin?download=1", target, MD5).read_bytes() == CONTENT
    assert behavior.requests == [None]
    assert list(target.parent.iterdir()) == [target]


def test_broken_connection_is_taken_up_where_it_broke(site: Path, tmp_path: Path):
    behavior = Behavior(break_after=100_000, breaks=2)
    with serving(site, behavior) as address:
        target = fetch(f"{address}/data.bin", tmp_path / "data.bin", MD5, pause=0)
    assert target.read_bytes() == CONTENT
    assert behavior.requests == [None, "bytes=100000-", "bytes=200000-"]


def test_another_call_continues_what_an_earlier_one_left(site: Path, tmp_path: Path):
    (tmp_path / "data.bin.partial").write_bytes(CONTENT[:123])
    behavior = Behavior()
    with serving(site, behavior) as address:
        target = fetch(f"{address}/data.bin", tmp_path / "data.bin", MD5)
    assert target.read_bytes() == CONTENT
    assert behavior.requests == ["bytes=123-"]


def test_server_that_cannot_continue_is_asked_for_all_of_it(site: Path, tmp_path: Path):
    (tmp_path / "data.bin.partial").write_bytes(b"x" * 123)
    with serving(site, Behavior(ranges=False)) as address:
        target = fetch(f"{address}/data.bin", tmp_path / "data.bin", MD5)
    assert target.read_bytes() == CONTENT


def test_complete_or_overlong_leftovers_are_told_apart(site: Path, tmp_path: Path):
    partial = tmp_path / "data.bin.partial"
    for left in (CONTENT, CONTENT + b"more"):
        partial.write_bytes(left)
        with serving(site, Behavior()) as address:
            target = fetch(f"{address}/data.bin", tmp_path / "data.bin", MD5, pause=0)
        assert target.read_bytes() == CONTENT
        target.unlink()


def test_connection_that_never_gets_on_gives_up_and_says_how_to_go_on(site: Path, tmp_path: Path):
    behavior = Behavior(break_after=0, breaks=99)
    with (
        serving(site, behavior) as address,
        pytest.raises(UserError, match=r"broke off \(0\.0 MB are here\); run the same command"),
    ):
        fetch(f"{address}/data.bin", tmp_path / "data.bin", MD5, pause=0)
    assert len(behavior.requests) == ATTEMPTS
    with pytest.raises(UserError, match=r"refused.* run the same command again"):
        fetch("http://127.0.0.1:9/data.bin", tmp_path / "data.bin", MD5, pause=0)


def test_wrong_checksum_is_deleted_and_both_sums_are_named(site: Path, tmp_path: Path):
    wrong = "0" * 32
    with (
        serving(site, Behavior()) as address,
        pytest.raises(UserError, match=f"data.bin.*: md5 is {MD5}, published is {wrong}"),
    ):
        fetch(f"{address}/data.bin", tmp_path / "data.bin", wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


def test_absent_file_names_the_options(site: Path, tmp_path: Path):
    with (
        serving(site, Behavior()) as address,
        pytest.raises(UserError, match=r"answers 404 .*--url URL.*--archive FILE"),
    ):
        fetch(f"{address}/absent.bin", tmp_path / "absent.bin", None)


def test_server_that_is_busy_is_asked_again(tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.bin").write_bytes(b"content")
    behavior = Behavior(busy=2)
    with serving(tmp_path / "site", behavior) as address:
        fetched = fetch(f"{address}/a.bin", tmp_path / "a.bin", None, pause=0)
    assert fetched.read_bytes() == b"content"
    assert len(behavior.requests) == 3


@pytest.mark.parametrize("url", ["nowhere", "http://[::1/a.bin"])
def test_what_is_no_address_is_refused_at_once(tmp_path: Path, url: str):
    with pytest.raises(UserError, match=r"^--url .*; expected http"):
        fetch(url, tmp_path / "a.bin", None, pause=60)
