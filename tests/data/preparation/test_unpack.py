import os
import random
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


@pytest.mark.parametrize("kind", ["gztar", "bztar", "xztar", "zip"])
def test_a_changed_byte_is_noticed(kind: str, tmp_path: Path):
    """Also where the archive has as many bytes as before, and each of them can be decompressed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "noise").write_bytes(random.Random(0).randbytes(100_000))
    archive = Path(shutil.make_archive(str(tmp_path / "good"), kind, tmp_path / "in"))
    content = bytearray(archive.read_bytes())
    content[50_000] ^= 1
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged \(.+\); download the file again"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("suffix", [".tgz", ".zip", ".tar"])
def test_a_page_instead_of_an_archive(suffix: str, tmp_path: Path):
    archive = (tmp_path / "images").with_suffix(suffix)
    archive.write_text("<html>the file has moved</html>")
    with pytest.raises(UserError, match=r"is damaged \(.+\); download the file again"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", ["gztar", "zip"])
def test_a_disk_that_refuses_a_file_is_no_damage(kind: str, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one")
    archive = Path(shutil.make_archive(str(tmp_path / "good"), kind, tmp_path / "in"))
    (tmp_path / "out" / "a.txt").mkdir(parents=True)  # in the place of the file
    with pytest.raises(IsADirectoryError):
        unpack(archive, tmp_path / "out")


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
        (hostile_tar("node", "", tarfile.BLKTYPE), "is a link or a device"),
        (hostile_tar("node", "", tarfile.FIFOTYPE), "is a link or a device"),
        (hostile_zip("../evil"), "leads out"),
        (hostile_zip("link", stat.S_IFLNK | 0o777), "is a link or a device"),
        (hostile_zip("node", stat.S_IFCHR | 0o666), "is a link or a device"),
        (hostile_zip("node", stat.S_IFBLK | 0o666), "is a link or a device"),
        (hostile_zip("node", stat.S_IFIFO | 0o666), "is a link or a device"),
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
