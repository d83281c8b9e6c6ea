import hashlib
import os
from pathlib import Path

import pytest

from dml.core.download import Checksum, ChecksumError
from dml.core.errors import UserError
from dml.data.npm_packages import is_installed, pack

CONTENT = b"an archive\n"
RIGHT = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())
PACKS = 'test "$1 $2 $3 $4" = "pack @a/b@1.0.0 --ignore-scripts --pack-destination" || exit 9\n'
REFUSES = """
echo "npm warn Unknown config" >&2
echo "npm error code ETARGET" >&2
echo "npm error notarget No matching version found for @a/b@1.0.0." >&2
echo "npm error A complete log of this run can be found in: x" >&2
exit 1
"""


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a command `npm` that runs the given lines of a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(script: str) -> None:
        (folder / "npm").write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\n{script}")
        (folder / "npm").chmod(0o755)

    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return install


def calls(tmp_path: Path) -> int:
    return (tmp_path / "calls").read_text().count("x")


def test_a_package_is_fetched_once(npm, tmp_path: Path):
    npm(f'{PACKS}printf "an archive\\n" > "$5/a-b-1.0.0.tgz"')
    target = tmp_path / "packages" / "a-b-1.0.0.tgz"
    for _ in range(2):
        assert pack("@a/b@1.0.0", target, RIGHT) == target
    assert target.read_bytes() == CONTENT
    assert calls(tmp_path) == 1
    target.write_bytes(b"altered")
    pack("@a/b@1.0.0", target, RIGHT)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_target_may_be_relative(npm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    npm(f'{PACKS}printf "an archive\\n" > "$5/a-b-1.0.0.tgz"')
    monkeypatch.chdir(tmp_path)
    assert pack("@a/b@1.0.0", Path("packages/a.tgz"), RIGHT) == Path("packages/a.tgz")
    assert (tmp_path / "packages" / "a.tgz").read_bytes() == CONTENT


def test_another_archive_leaves_nothing(npm, tmp_path: Path):
    npm(f'{PACKS}echo "another archive" > "$5/a-b-1.0.0.tgz"')
    with pytest.raises(ChecksumError):
        pack("@a/b@1.0.0", tmp_path / "packages" / "a.tgz", RIGHT)
    assert list((tmp_path / "packages").iterdir()) == []


def test_an_error_of_npm_is_one_line(npm, tmp_path: Path):
    npm(REFUSES)
    message = r"^npm pack @a/b@1\.0\.0 failed: notarget No matching version found for @a/b@1\.0\.0"
    with pytest.raises(UserError, match=message) as raised:
        pack("@a/b@1.0.0", tmp_path / "a.tgz", RIGHT)
    assert "\n" not in str(raised.value)
    npm("exit 1")
    with pytest.raises(UserError, match=r"failed: it gives no reason$"):
        pack("@a/b@1.0.0", tmp_path / "a.tgz", RIGHT)


def test_npm_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not is_installed()
    with pytest.raises(UserError, match=r"^@a/b@1\.0\.0: npm is not installed$"):
        pack("@a/b@1.0.0", tmp_path / "a.tgz", RIGHT)
