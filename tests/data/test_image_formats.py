"""Which files are read as images, and what is said of the others."""

import sys

import pytest
from PIL import Image, features

from dml.core.errors import UserError
from dml.data import image_formats
from dml.data.decode import load_image
from dml.data.image_formats import is_readable, readable_suffixes, why_not_read

HEIF_PLUGIN = """
from PIL import Image, ImageFile
class Heif(ImageFile.ImageFile):
    format = "HEIF"
    def _open(self):
        self.fp.read(4)
        self._mode, self._size = "L", (2, 2)
        self.tile = [ImageFile._Tile("raw", (0, 0, 2, 2), 4, ("L", 0, 1))]
def register_heif_opener():
    Image.register_open("HEIF", Heif, lambda prefix: prefix[:4] == b"heif")
"""


@pytest.fixture
def forget_formats(monkeypatch):
    """Formats are looked up anew, and those of the test are forgotten."""
    caches = (readable_suffixes, image_formats._register_heif)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setattr(Image, "OPEN", {**Image.OPEN})
    monkeypatch.setattr(Image, "ID", [*Image.ID])
    yield
    sys.modules.pop("pillow_heif", None)
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("suffix", [s for s in readable_suffixes() if s not in image_formats.HEIF])
def test_every_format_that_is_read_is_decoded(tmp_path, suffix):
    path = tmp_path / f"a{suffix.upper()}"
    assert is_readable(path.name)
    kind = {".jfif": "JPEG", ".pnm": "PPM"}.get(suffix) or Image.registered_extensions()[suffix]
    Image.new("RGB", (8, 8), (200, 200, 200)).save(path, format=kind)
    assert load_image(path).float().mean() == pytest.approx(200, abs=60)  # .pbm: black or white


@pytest.mark.parametrize("codec", ["avif", "jpg_2000"])
def test_a_codec_that_pillow_lacks_is_not_read(forget_formats, monkeypatch, codec):
    monkeypatch.setattr(features, "check", lambda name: name != codec)
    (suffix, *_) = image_formats.BY_CODEC[codec]
    assert suffix not in readable_suffixes()
    assert why_not_read(f"a{suffix}") == f"{suffix}, which is not read"


def test_images_of_phones_are_read_with_their_plugin(forget_formats, monkeypatch, tmp_path):
    path = tmp_path / "a.HEIC"
    path.write_bytes(b"heif" + bytes([7]) * 4)
    monkeypatch.setattr(image_formats, "find_spec", lambda name: None)
    assert not is_readable(path.name)
    assert why_not_read(path.name) == ".heic, which needs pip install pillow-heif"
    with pytest.raises(UserError, match=r"cannot identify.*pip install pillow-heif"):
        load_image(path)
    monkeypatch.undo()
    (tmp_path / "pillow_heif.py").write_text(HEIF_PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    readable_suffixes.cache_clear()
    assert is_readable(path.name)
    assert load_image(path).unique().tolist() == [7]
    path.write_bytes(b"cut")
    with pytest.raises(UserError, match="cannot decode") as damaged:
        load_image(path)
    assert "pip install" not in str(damaged.value)  # which would not help


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.mp4", ".mp4, which is not read"),
        ("a.CR2", ".cr2, which is not read"),
        ("0001", "without an ending such as .jpg"),
        ("notes.txt", None),
        ("Thumbs.db", None),
        (".DS_Store", None),
    ],
)
def test_other_files_are_named_by_their_type(name, reason):
    assert not is_readable(name)
    assert why_not_read(name) == reason
