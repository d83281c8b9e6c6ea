from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from dml.core.errors import UserError
from dml.data.decode import load_image
from tests.data.trees import photo, save, truncate


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("suffix", [".jpg", ".JPG", ".png"])
def test_every_color_mode_is_read_as_pillow_converts_it(tmp_path: Path, mode: str, suffix: str):
    if suffix == ".png" and mode == "CMYK":
        pytest.skip("there is no CMYK PNG")
    path = save(tmp_path / f"a{suffix}", seed=3, mode=mode)
    image = load_image(path)
    with Image.open(path) as opened:
        expected = np.array(opened.convert("RGB"))
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 30, 40))
    difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected.astype(int))
    assert difference.max() <= 1


def test_transparent_and_palette_images_are_read_as_pillow_converts_them(tmp_path: Path):
    for mode in ("RGBA", "LA", "P", "1"):
        path = tmp_path / f"{mode}.png"
        photo(5).convert(mode).save(path)
        with Image.open(path) as opened:
            expected = np.array(opened.convert("RGB"))
        assert np.array_equal(load_image(path).permute(1, 2, 0).numpy(), expected), mode


def test_missing_truncated_and_foreign_files_are_named(tmp_path: Path):
    foreign = tmp_path / "notes.jpg"
    foreign.write_text("not an image")
    empty = tmp_path / "empty.jpg"
    empty.touch()
    cut = truncate(save(tmp_path / "cut.jpg", 1, size=(400, 300)))
    for path in (tmp_path / "absent.jpg", foreign, empty, cut):
        with pytest.raises(UserError, match=path.name):
            load_image(path)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_only_on_request(tmp_path: Path, suffix: str, orientation: int):
    path = tmp_path / f"a{suffix}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo(3).save(path, exif=exif)
    with Image.open(path) as opened:
        stored, upright = np.array(opened), np.array(ImageOps.exif_transpose(opened))
    for apply, expected in ((False, stored), (True, upright)):
        pixels = load_image(path, apply).permute(1, 2, 0).numpy().astype(int)
        assert pixels.shape == expected.shape
        assert np.abs(pixels - expected).max() <= 1
