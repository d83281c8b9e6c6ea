import hashlib
import os
import sys
from pathlib import Path

import pytest

from dml.core.download import Checksum, ChecksumError
from dml.core.errors import UserError
from dml.data.preparation.sources import SourceFile
from studies.packages import fetch

RIGHT = Checksum("sha256", hashlib.sha256(b"an archive\n").hexdigest())
NPM = SourceFile("b-1.0.0", "npm pack @a/b@1.0.0", RIGHT)
PIP = SourceFile("b-1.0.0", "pip download b==1.0.0 --no-deps", RIGHT)
RECEIVED = {  # arguments without the folder at their end
    NPM: "pack @a/b@1.0.0 --ignore-scripts --pack-destination",
    PIP: "-m pip download b==1.0.0 --no-deps --dest",
}
FETCHES = 'for folder; do true; done; printf "an archive\\n" > "$folder/b-1.0.0"'


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Replaces npm and Python by a shell script, which is passed to the returned function."""
    file = tmp_path / "bin" / "npm"
    file.parent.mkdir()
    monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(sys, "executable", str(file))

    def install(script: str) -> None:
        file.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}')
        file.chmod(0o755)

    return install


@pytest.mark.parametrize("file", [NPM, PIP], ids=["npm", "pip"])
def test_a_package_is_fetched_once_also_to_a_relative_folder(file, program, tmp_path, monkeypatch):
    program(FETCHES)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert fetch(file, Path("packages")) == Path("packages/b-1.0.0")
    assert (tmp_path / "packages/b-1.0.0").read_bytes() == b"an archive\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.rpartition(" ")[0] for call in calls] == [RECEIVED[file]]
    with pytest.raises(ChecksumError):
        fetch(SourceFile("b-1.0.0", file.home, Checksum("sha256", "0" * 64)), Path("others"))
    assert not list((tmp_path / "others").iterdir())


@pytest.mark.parametrize(
    ("file", "output", "reason"),
    [
        (NPM, "npm error code E404\nnpm error 404 Not Found", "404 Not Found"),
        (PIP, "WARNING: slow\nERROR: No matching distribution", "No matching distribution"),
        (PIP, "", "it gives no reason"),
    ],
)
def test_failure_is_explained_in_one_line(file, output, reason, program, tmp_path):
    program(f'printf "{output}" >&2; exit 1')
    with pytest.raises(UserError, match=rf"^{file.home} failed: {reason}$"):
        fetch(file, tmp_path)
