import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dml.core.download import ATTEMPTS, Checksum, ChecksumError, download, with_mirror
from dml.core.errors import UserError
from tests.core.servers import Behavior, serving
from tests.waiting import wait_until

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
    with pytest.raises(UserError, match="Connection refused; run the same"):
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
    assert not (tmp_path / "data.bin.partial").exists()


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


PAGE = b"<!DOCTYPE html><html><head><title>Quota exceeded &amp; more</title></head></html>"
FAILURES = {
    "silent": (Behavior(silent_after=0), "silent for 1 s"),
    "silent in the middle": (Behavior(silent_after=1000), "silent for 1 s"),
    "not found": (Behavior(status=404), "answers 404 Not Found"),
    "forbidden": (Behavior(status=403), "answers 403 Forbidden"),
    "overloaded": (Behavior(status=503), "answers 503 Service Unavailable"),
    "other content": (Behavior(content=b"x" * len(CONTENT)), "published is"),
    "half of it": (Behavior(content=CONTENT[:1000]), "announces 1,000 bytes, published are"),
    "a web page": (Behavior(content=PAGE), r"a web page \(Quota exceeded & more\), not the file"),
    "a certificate": (Behavior(encrypted=True), "CERTIFICATE_VERIFY_FAILED"),
    "breaks": (Behavior(break_after=10, breaks=99), r"the connection broke off \("),
}
PUBLISHED = Checksum("md5", MD5.digits, len(CONTENT))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("dml.core.download.SILENT_SECONDS", 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("failure", [*FAILURES, "dead"])
def test_the_next_address_delivers(site: Path, tmp_path: Path, capsys, failure: str):
    behavior, reason = FAILURES.get(failure, (Behavior(), "Connection refused"))
    behavior.requests.clear()
    sound = Behavior()
    with serving(site, behavior) as first, serving(site, sound) as second:
        if failure == "dead":
            first = "http://127.0.0.1:9"
        addresses = [f"{first}/data.bin", f"{second}/data.bin"]
        target = download(addresses, tmp_path / "data.bin", PUBLISHED, pause=0)
    assert target.read_bytes() == CONTENT
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{first}/data.bin")
    assert re.search(f"{reason}.*; trying the next address$", line)
    assert len(sound.requests) == 1
    attempts = {"dead": 0, "a certificate": 0, "breaks": ATTEMPTS}
    assert len(behavior.requests) == attempts.get(failure, 1)


@pytest.mark.usefixtures("impatient")
def test_all_addresses_are_named_with_their_reasons(site: Path, tmp_path: Path):
    absent, page = Behavior(status=404), Behavior(content=PAGE)
    with serving(site, absent) as first, serving(site, page) as second:
        addresses = [f"{first}/a", f"{second}/data.bin", "http://127.0.0.1:9/c"]
        with pytest.raises(UserError) as caught:
            download(addresses, tmp_path / "data.bin", PUBLISHED, advice="place it here")
    title, *lines, advice = str(caught.value).splitlines()
    assert title == f"no address has data.bin (md5 {MD5.digits}, 300,000 bytes):"
    assert [line.split()[0].rstrip(":") for line in lines] == addresses
    assert advice == "place it here"


def test_the_next_address_continues_and_another_file_before_it_does_no_harm(site, tmp_path):
    broken, sound = Behavior(break_after=1000, breaks=99), Behavior()
    with serving(site, broken) as first, serving(site, sound) as second:
        addresses = [f"{first}/data.bin", f"{second}/data.bin"]
        download(addresses, tmp_path / "data.bin", MD5, pause=0)
    assert sound.requests == ["bytes=4000-"]
    broken = Behavior(break_after=1000, breaks=99, content=b"x" * len(CONTENT))
    sound.requests.clear()
    with serving(site, broken) as first, serving(site, sound) as second:
        addresses = [f"{first}/data.bin", f"{second}/data.bin"]
        target = download(addresses, tmp_path / "again.bin", MD5, pause=0)
    assert target.read_bytes() == CONTENT
    assert sound.requests == ["bytes=4000-", None]


def test_a_mirror_is_tried_first(site: Path, tmp_path: Path, monkeypatch, capsys):
    public = "http://127.0.0.1:9/public.bin"
    assert with_mirror("data.bin", [public]) == [public]
    for base in (str(site), f"{site}/", site.as_uri()):
        monkeypatch.setenv("DML_MIRROR", base)
        target = tmp_path / "data.bin"
        download(with_mirror("data.bin", [public]), target, MD5)
        assert target.read_bytes() == CONTENT
        target.unlink()
    with serving(site, Behavior()) as address:
        monkeypatch.setenv("DML_MIRROR", address)
        assert with_mirror("data.bin", [public]) == [f"{address}/data.bin", public]
        assert download(with_mirror("data.bin", [public]), target, MD5) == target
    assert capsys.readouterr().out == ""


def wait_for_bytes(partial: Path) -> None:
    wait_until(lambda: partial.is_file() and partial.stat().st_size)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_silent_download_and_another_call_continues(site, tmp_path, stop):
    target = tmp_path / "data.bin"
    script = (
        "import sys; from pathlib import Path; from dml.core.download import Checksum, download\n"
        "from dml.core.signals import raise_on_signals\n"
        "with raise_on_signals(): download(sys.argv[1], Path(sys.argv[2]), "
        f"Checksum('md5', '{MD5.digits}'))"
    )
    with serving(site, Behavior(silent_after=2 << 20)) as address:
        (site / "data.bin").write_bytes(large := CONTENT * 10)
        command = [sys.executable, "-c", script, f"{address}/data.bin", str(target)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for_bytes(target.with_name("data.bin.partial"))
        process.send_signal(stop)
        started = time.monotonic()
        assert process.wait(timeout=20) != 0
        assert time.monotonic() - started < 2
    behavior = Behavior()
    with serving(site, behavior) as address:
        checksum = Checksum("md5", hashlib.md5(large).hexdigest())
        assert download(f"{address}/data.bin", target, checksum).read_bytes() == large
    (asked,) = behavior.requests
    assert asked is not None
