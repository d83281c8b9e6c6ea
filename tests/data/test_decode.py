from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from dml.core.errors import UserError
from dml.data.decode import load_image
from tests.data.trees import photo, save, truncate


@pytest.mark.parametrize(
    "name",
    ["RGB.jpg", "L.jpg", "CMYK.JPG", "RGB.png", "L.png", "RGBA.png", "LA.png", "P.png", "1.png"],
)
def test_every_color_mode_is_read_as_pillow_converts_it(tmp_path: Path, name: str):
    path = save(tmp_path / name, seed=3, mode=name[:-4])
    image = load_image(path)
    with Image.open(path) as opened:
        expected = np.array(opened.convert("RGB"))
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 30, 40))
    difference = np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected.astype(int))
    assert difference.max() <= (name[-4:] != ".png")


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


def test_a_box_does_not_keep_the_rest_of_its_image(tmp_path: Path):
    path = save(tmp_path / "a.png", 1, size=(800, 600))
    part = load_image(Path(f"{path}#10,20,40,60"))
    assert part.untyped_storage().nbytes() == part.numel() == 3 * 30 * 40
    assert torch.equal(part, load_image(path)[:, 20:60, 10:40])
