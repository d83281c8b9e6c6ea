"""The background of transparent images in training, evaluation, embedding and search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import dml
from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.preparation.image_check import count_transparent
from dml.runs.figures import run_figures
from dml.runs.folder.run_folder import load_config

SMALL = ("backbone=small_cnn", "transform.size=16", "data.batch_size=8", "speed=exact")
SMALL += ("protocol=traditional", "loss=contrastive")


@pytest.fixture
def logos(tmp_path):
    """Four classes of four black shapes on transparency, whose hidden color is black."""
    for number in range(16):
        image = Image.new("RGBA", (16, 16), (0, 0, 0, 0))
        side = 4 + 3 * (number // 4)
        ImageDraw.Draw(image).rectangle((number % 4, 0, side, side), fill=(0, 0, 0, 255))
        path = tmp_path / "logos" / f"k{number // 4}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    return tmp_path / "logos"


def on(image: Image.Image, color: str) -> Image.Image:
    canvas = Image.new("RGBA", image.size, color)
    return Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB")


@pytest.fixture(params=["white", "#ff0000"])
def trained(request, run_tiny, logos):
    """A run on logos: its folder, and its background."""
    words = ("data=folder", f"data.root={logos}", *SMALL, "protocol.epochs=1")
    _, folder = run_tiny(*words, f"data.background='{request.param}'")
    return folder, request.param


def test_the_background_of_a_run_is_used_by_everything_that_reads_it(trained, logos, evaluated):
    folder, color = trained
    assert load_config(folder).data.background == color
    embedder, transform = dml.load(folder)
    file = logos / "k3" / "15.png"
    with Image.open(file) as image:
        pixels = [transform(image), transform(on(image, color))]
        assert torch.equal(*pixels)
        palette = image.quantize(4)
    assert torch.equal(transform(palette), pixels[0])
    with torch.inference_mode():
        expected = embedder(pixels[0][None]).numpy()
    made = dml.embed(folder, [file, logos / "k0" / "0.png"]).embeddings
    np.testing.assert_allclose(made[:1], expected, atol=1e-5)
    evaluated(f"run={folder}", "save=float32")
    with np.load(folder / "embeddings.npz") as stored:
        tested = dml.embed(folder, [*map(Path, stored["paths"])]).embeddings
        np.testing.assert_allclose(stored["embeddings"], tested, atol=1e-5)


def test_a_picture_of_a_search_shows_the_background(trained, logos, tmp_path, monkeypatch):
    folder, color = trained
    shown = []
    load = run_figures.load_image

    def note(*args, **options):
        shown.append(options["background"])
        return load(*args, **options)

    monkeypatch.setattr(run_figures, "load_image", note)
    dml.embed(folder, logos, tmp_path / "x.npz")
    dml.search(tmp_path / "x.npz", [0], k=2, picture=tmp_path / "x.png")
    assert shown == [color] * 3


def test_an_option_of_embed_wins_over_the_network(trained, logos):
    folder, _ = trained
    black = dml.embed(folder, logos, options=["data.background=black"]).embeddings
    assert np.ptp(black, axis=0).max() < 1e-6  # black shapes on black


@pytest.mark.promise(
    "guides/own_images.md",
    "images change under equal names: the same command refuses to mix them with the earlier ones",
)
def test_images_whose_content_changed_are_other_images(trained, run_tiny, logos):
    folder, color = trained
    file = logos / "k1" / "5.png"
    words = ("data=folder", f"data.root={logos}", *SMALL, "protocol.epochs=1")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # of the last checksum: equal name, size and pixels
    file.write_bytes(content)
    with pytest.raises(UserError, match="has other images"):
        run_tiny(*words, f"data.background='{color}'")
    dataset = folder / "dataset.json"
    stored = dataset.read_text()
    dataset.write_text(stored.replace('"content"', '"of an earlier version"'))
    run_tiny(*words, f"data.background='{color}'")  # it stored no content


def test_embed_and_search_count_transparent_images(trained, logos, tmp_path, caplog):
    folder, color = trained
    opaque = tmp_path / "opaque.png"
    Image.new("RGBA", (32, 32), (9, 9, 9, 255)).save(opaque)  # with a channel of no use
    (tmp_path / "damaged.gif").write_bytes(b"GIF89a")
    dml.embed(folder, [logos / "k0" / "0.png", logos / "k1" / "5.png", opaque], tmp_path / "x.npz")
    (line,) = [line for line in caplog.messages if "transparent" in line]
    assert "2 of 3 images have transparent pixels" in line
    assert color in line
    caplog.clear()
    dml.search(tmp_path / "x.npz", [str(logos / "k2" / "8.png")], k=1)
    assert any("1 of 1 images has transparent pixels" in line for line in caplog.messages)
    index = ImageIndex("x", [tmp_path / "damaged.gif"], np.zeros(1, int), np.array(["test"]))
    assert count_transparent(index).transparent == 0
