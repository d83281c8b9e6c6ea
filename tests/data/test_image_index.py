from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dml.core.errors import UserError
from dml.data.base import ImageDataset, ImageIndex, Subset
from dml.data.decode import load_image
from tests.data.trees import photo, save, truncate


def small_index() -> ImageIndex:
    images = np.arange(6 * 2 * 2 * 3, dtype=np.uint8).reshape(6, 2, 2, 3)
    labels = np.array([0, 2, 1, 2, 0, 3])
    roles = np.array(["train", "test", "train", "query", "train", "gallery"])
    return ImageIndex("small", images, labels, roles)


def test_view_keeps_index_order_and_makes_labels_contiguous():
    view = small_index().subset("test", "query", "gallery")
    assert view.rows.tolist() == [1, 3, 5]
    assert view.labels.tolist() == [0, 0, 1]
    assert view.classes.tolist() == [2, 3]
    assert (len(view), view.num_classes) == (3, 2)


def test_part_of_a_view_is_named_by_the_views_own_labels():
    view = small_index().subset("train", "test", "query", "gallery").of_classes([1, 3])
    assert view.rows.tolist() == [2, 5]
    assert view.labels.tolist() == [0, 1]
    again = view.of_classes([1])
    assert again.rows.tolist() == [5]
    assert again.classes.tolist() == [3]


def test_index_of_unequal_lengths_or_unknown_roles_is_refused():
    images = np.zeros((2, 1, 1, 3), np.uint8)
    with pytest.raises(ValueError, match="differ in length: 2, 1, 2"):
        ImageIndex("x", images, np.array([0]), np.array(["train", "test"]))
    with pytest.raises(ValueError, match=r"unknown.*'val'"):
        ImageIndex("x", images, np.array([0, 1]), np.array(["train", "val"]))


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


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_of_sixteen_bits_the_upper_eight_are_kept(tmp_path: Path, suffix: str):
    levels = np.arange(30 * 40, dtype=np.uint16).reshape(30, 40) * 54
    path = tmp_path / f"a{suffix}"
    Image.fromarray(levels).save(path)
    assert np.array_equal(load_image(path).numpy(), np.stack([levels // 256] * 3))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_numbers_without_a_white_level_are_refused(tmp_path: Path, kind: type):
    path = tmp_path / "a.tif"
    Image.fromarray(np.ones((3, 4), kind)).save(path)
    with pytest.raises(UserError, match=r"a\.tif: 32-bit numbers .*; save it with 8 or 16 bits"):
        load_image(path)


def test_missing_truncated_and_foreign_files_are_named(tmp_path: Path):
    foreign = tmp_path / "notes.jpg"
    foreign.write_text("not an image")
    empty = tmp_path / "empty.jpg"
    empty.touch()
    cut = truncate(save(tmp_path / "cut.jpg", 1, size=(400, 300)))
    for path in (tmp_path / "absent.jpg", foreign, empty, cut):
        with pytest.raises(UserError, match=path.name):
            load_image(path)


def test_dataset_yields_images_with_the_views_labels():
    view = small_index().subset("test", "query", "gallery")
    dataset = ImageDataset(view, nn.Identity())
    image, label = dataset[2]
    assert label == 1
    assert torch.equal(image, torch.from_numpy(view.index.images[5]).permute(2, 0, 1))


class Noise(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.rand(3)


def test_draw_decides_the_augmentation_and_leaves_the_global_generator_alone():
    dataset = ImageDataset(Subset(small_index(), np.arange(6)), Noise())
    torch.manual_seed(1)
    expected_next = torch.rand(1)
    torch.manual_seed(1)
    first, again, other = dataset[(0, 7)][0], dataset[(3, 7)][0], dataset[(0, 8)][0]
    assert torch.equal(torch.rand(1), expected_next)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_global_generator_survives_a_failing_transform():
    class Broken(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken")

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="broken"):
        ImageDataset(Subset(small_index(), np.arange(6)), Broken())[(0, 7)]
    assert torch.equal(torch.get_rng_state(), state)
