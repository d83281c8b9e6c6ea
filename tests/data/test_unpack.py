import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.unpack import unpack

GOOD = {"set/a.txt": b"one", "set/deep/b.txt": b"two" * 100_000}


def tar_of(path: Path, *members: tuple[str, bytes, str, int]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content, link, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = bytes([kind]), link, len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def good_tar(folder: Path) -> Path:
    return tar_of(
        folder / "good.tgz",
        ("set", b"", "", tarfile.DIRTYPE[0]),
        *((name, content, "", tarfile.REGTYPE[0]) for name, content in GOOD.items()),
    )


def good_zip(folder: Path) -> Path:
    path = folder / "good.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("set/", b"")
        for name, content in GOOD.items():
            packed.writestr(name, content)
    return path


def hostile_tar(name: str, link: str = "", kind: bytes = tarfile.REGTYPE) -> Callable[[Path], Path]:
    return lambda folder: tar_of(folder / "hostile.tgz", (name, b"", link, kind[0]))


def hostile_zip(name: str, mode: int = 0) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "hostile.zip", "w") as packed:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            packed.writestr(member, "/etc/passwd")
        return folder / "hostile.zip"

    return build


@pytest.mark.parametrize("build", [good_tar, good_zip])
def test_files_come_out_as_they_went_in(build: Callable[[Path], Path], tmp_path: Path):
    unpack(build(tmp_path), tmp_path / "out")
    found = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert found == GOOD


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
