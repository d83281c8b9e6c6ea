import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.preparation.unpack import unpack

GOOD = {"set/a.txt": b"one", "set/deep/b.txt": os.urandom(1000)}


def hostile_tar(name: str, link: str = "", kind: bytes = tarfile.REGTYPE) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        with tarfile.open(folder / "hostile.tgz", "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            tar.addfile(member)
        return folder / "hostile.tgz"

    return build


def hostile_zip(name: str, mode: int = 0) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "hostile.zip", "w") as packed:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            packed.writestr(member, "/etc/passwd")
        return folder / "hostile.zip"

    return build


@pytest.mark.parametrize("kind", ["gztar", "zip", "xztar"])
def test_files_come_out_as_they_went_in(kind: str, tmp_path: Path):
    for name, content in GOOD.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    archive = Path(shutil.make_archive(str(tmp_path / "good"), kind, tmp_path / "in"))
    unpack(archive, tmp_path / "out")
    for name, content in GOOD.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"is damaged .*; download the file again"):
        unpack(archive, tmp_path / "again")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (hostile_tar("../evil"), "leads out"),
        (hostile_tar("/tmp/evil"), "leads out"),
        (hostile_tar("set\\..\\..\\evil"), "leads out"),
        (hostile_tar("C:/evil"), "leads out"),
        (hostile_tar("link", "/etc", tarfile.SYMTYPE), "is a link or a device"),
        (hostile_tar("link", "set/a.txt", tarfile.LNKTYPE), "is a link or a device"),
        (hostile_tar("node", "", tarfile.CHRTYPE), "is a link or a device"),
        (hostile_zip("../evil"), "leads out"),
        (hostile_zip("link", stat.S_IFLNK | 0o777), "is a link or a device"),
    ],
)
def test_hostile_archive_is_refused(build: Callable[[Path], Path], reason: str, tmp_path: Path):
    inside = tmp_path / "inside"
    archive = build(tmp_path)
    with pytest.raises(UserError, match=f"is refused: .*{reason}"):
        unpack(archive, inside / "out")
    assert list(tmp_path.rglob("*evil*")) == []
    assert list((inside / "out").iterdir()) == []
    assert not Path("/tmp/evil").exists()
