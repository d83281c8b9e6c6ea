import hashlib
import os
from pathlib import Path

import pytest

from dml.core.download import Checksum, ChecksumError
from scripts.studies.emoji.npm import pack

CONTENT = b"an archive\n"
RIGHT = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())
PACKS = 'test "$1 $2 $3 $4" = "pack @a/b@1.0.0 --ignore-scripts --pack-destination" || exit 9\n'


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


def test_a_package_is_fetched_once_also_to_a_relative_folder(npm, tmp_path, monkeypatch):
    npm(f'{PACKS}printf "an archive\\n" > "$5/a-b-1.0.0.tgz"')
    monkeypatch.chdir(tmp_path)
    target = Path("packages/a-b-1.0.0.tgz")
    for _ in range(2):
        assert pack("@a/b@1.0.0", target, RIGHT) == target
    assert (tmp_path / target).read_bytes() == CONTENT
    assert (tmp_path / "calls").read_text().count("x") == 1
    with pytest.raises(ChecksumError):
        pack("@a/b@1.0.0", Path("packages/other.tgz"), Checksum("sha256", "0" * 64))
    assert list((tmp_path / "packages").iterdir()) == [tmp_path / target]
