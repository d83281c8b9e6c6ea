"""`preprocessor_config.json` and the script of an export prepare images as the network's transform.

The script runs here without onnxruntime: a stand-in returns the prepared images.
"""

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dml.data.augmentations import CustomTransform
from dml.data.decode import load_image
from dml.data.transforms import ToInput, eval_transform
from dml.models.backbones import IMAGENET, InputSpec
from dml.runs.exported_forms import TEMPLATE
from dml.runs.preprocessor import preprocessor_config

CAFFE = InputSpec(227, (104.0, 117.0, 128.0), (1.0, 1.0, 1.0), "bgr", 255.0)
SIGLIP = InputSpec(224, interpolation="bicubic", crop_share=None)
SMALL = InputSpec(None)
# size, resize, input
PREPARATIONS = {
    "crop": (224, 256, IMAGENET),
    "caffe": (227, 256, CAFFE),
    "square": (224, None, SIGLIP),
    "bicubic": (48, 54, SIGLIP),
    "rounded_up": (31, 34, SIGLIP),
    "odd": (31, 36, IMAGENET),
    "as_it_is": (None, None, SMALL),
}
# Elsewhere torchvision resizes in floats, whose rounding may differ by a level.
RESIZES_INTEGERS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def noise(height, width, channels=3):
    """Smooth noise, so that neither clipping nor rounding hides a shift."""
    values = np.random.default_rng(height * width).integers(0, 256, (height, width, channels))
    return (values // 2 + np.arange(width)[:, None] * 127 // width).astype(np.uint8)


def write_images(folder):
    """Files of all kinds of pixels and sizes."""
    folder.mkdir()
    rgb = Image.fromarray(noise(61, 83))
    rgb.save(folder / "rgb.png")
    rgb.convert("L").save(folder / "gray.png")
    rgb.convert("1").save(folder / "black_and_white.png")
    rgb.convert("P").save(folder / "palette.png")
    rgb.convert("P").save(folder / "palette_with_a_color_left_out.png", transparency=3)
    rgb.convert("P").save(folder / "animation.gif", save_all=True, append_images=[rgb.rotate(9)])
    rgb.convert("CMYK").save(folder / "cmyk.jpg")
    rgb.convert("L").save(folder / "gray.jpg")
    rgb.save(folder / "rgb.bmp")
    rgb.save(folder / "rgb.tif")
    rgb.save(folder / "rgb.webp", lossless=True)
    Image.fromarray(noise(64, 45, 4), "RGBA").save(folder / "rgba.png")
    Image.fromarray(noise(45, 64, 2), "LA").save(folder / "la.png")
    rgb.convert("RGBA").save(folder / "opaque_rgba.png")
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        rgb.save(folder / f"orientation{orientation}.jpg", exif=exif)
    rgb.save(folder / "rotated.png", exif=exif)
    sizes = [(1, 1), (3, 2), (31, 31), (224, 224), (256, 300), (7, 70), (7, 71), (9, 300)]
    for height, width in [*sizes, (401, 11), (255, 257), (517, 389)]:
        Image.fromarray(noise(height, width)).save(folder / f"{height}x{width}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("preprocessor") / "images")


class Session:
    """A stand-in for the session of onnxruntime: returns its input."""

    size = "null"

    def __init__(self, model, providers):
        pass

    def run(self, outputs, inputs):
        assert outputs == ["embeddings"]
        return [inputs["images"]]

    def get_modelmeta(self):
        return SimpleNamespace(custom_metadata_map={"image_size": Session.size})


@pytest.fixture
def prepare_by(tmp_path, monkeypatch):
    """Returns the script beside the settings of a preparation."""
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))

    def build(size, resize, spec, background="white"):
        test = eval_transform(size, resize=resize, interpolation=spec.interpolation)
        fields = preprocessor_config(test, spec, background)
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
        (tmp_path / TEMPLATE.name).write_text(TEMPLATE.read_text())
        description = importlib.util.spec_from_file_location("script", tmp_path / TEMPLATE.name)
        script = importlib.util.module_from_spec(description)
        description.loader.exec_module(script)
        to_input = ToInput(spec.mean, spec.std, spec.channel_order, spec.scale)
        return script, test, to_input

    return build


@pytest.mark.parametrize("name", PREPARATIONS)
def test_images_are_prepared_by_the_script_as_by_the_transform(prepare_by, images, name):
    script, test, to_input = prepare_by(*PREPARATIONS[name])
    differing = 0
    for file in images:
        pixels = test(load_image(file, apply_orientation=True))
        computed = script.crop(script.decode(file))
        levels = np.abs(pixels.permute(1, 2, 0).numpy().astype(int) - computed)
        assert levels.max() <= (0 if RESIZES_INTEGERS else 1), file.name
        differing += int(levels.max() > 0)
        if levels.max() == 0:
            expected = to_input(pixels).numpy()
            np.testing.assert_allclose(script.prepare(file), expected, rtol=1e-5, atol=1e-5)
    assert differing < len(images)
    assert script.prepare(images[0]).dtype == np.float32


@pytest.mark.parametrize("background", ["white", "black", "#204060", "hsl(120,100%,25%)"])
def test_transparent_images_get_the_background_of_the_training(prepare_by, images, background):
    script, _, _ = prepare_by(None, None, SMALL, background)
    for file in images:
        expected = load_image(file, apply_orientation=True, background=background)
        assert np.array_equal(script.decode(file), expected.permute(1, 2, 0)), file.name


def test_a_bitmap_without_alpha(prepare_by, tmp_path):
    """A fourth byte that is 0 everywhere is unused."""
    pixels = noise(5, 6, 4)
    pixels[..., 3] = 0
    Image.fromarray(pixels, "RGBA").save(tmp_path / "x.bmp")
    script, _, _ = prepare_by(None, None, SMALL)
    expected = load_image(tmp_path / "x.bmp").permute(1, 2, 0)
    assert np.array_equal(script.decode(tmp_path / "x.bmp"), expected)


def test_files_are_embedded_from_paths_and_from_memory(prepare_by, images):
    script, _, _ = prepare_by(*PREPARATIONS["odd"])
    embedded = script.embed(images)
    assert embedded.shape == (len(images), 3, 31, 31)
    assert np.array_equal(script.embed([io.BytesIO(images[5].read_bytes())]), embedded[5:6])
    assert np.array_equal(script.embed([str(images[5])]), embedded[5:6])


@pytest.mark.parametrize("kind", ["16 bits", "32 bits", "text", "nothing", "half"])
def test_what_is_no_image_is_refused(prepare_by, tmp_path, kind):
    script, _, _ = prepare_by(*PREPARATIONS["odd"])
    file = tmp_path / "x.png"
    if kind == "16 bits":
        Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(file)
    elif kind == "32 bits":
        file = tmp_path / "x.tif"
        Image.fromarray(np.full((4, 4), 1e5, np.float32)).save(file)
    elif kind == "half":
        Image.fromarray(noise(40, 40)).save(file)
        file.write_bytes(file.read_bytes()[:2000])
    else:
        file.write_text("text" * (kind == "text"))
    with pytest.raises((OSError, ValueError)):
        script.embed([file])


@pytest.mark.promise(
    "guides/serve.md",
    "an image has not the size that the network takes, and the settings do not resize: `embed` "
    "names both sizes, and so does the answer of the service, with status 422",
)
def test_an_image_of_another_size_than_that_of_the_network_is_refused(
    prepare_by, images, monkeypatch
):
    monkeypatch.setattr(Session, "size", "[31, 31]")
    script, _, _ = prepare_by(*PREPARATIONS["as_it_is"])
    for file in images:
        if file.name == "31x31.png":
            assert script.embed([file]).shape == (1, 3, 31, 31)
            continue
        with pytest.raises(ValueError, match=r"\d+x\d+ pixels; the network takes 31x31$"):
            script.embed([file])


def test_a_transform_of_the_user_has_no_description():
    transform = CustomTransform(lambda image: image, train=False)
    assert preprocessor_config(transform, IMAGENET, "white") is None
    both = nn.Sequential(eval_transform(24), nn.Identity())
    assert preprocessor_config(both, IMAGENET, "white") is None


def test_the_fields_have_the_names_of_transformers():
    fields = preprocessor_config(eval_transform(224, resize=256), IMAGENET, "white")
    assert fields == {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "background": "white",
        "do_resize": True,
        "size": {"shortest_edge": 256},
        "resample": 2,
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "do_flip_channel_order": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }


@pytest.mark.parametrize("name", PREPARATIONS)
def test_transformers_reads_the_file(images, tmp_path, monkeypatch, name):
    """Opaque images of eight bits become the same input as ours."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    size, resize, spec = PREPARATIONS[name]
    test = eval_transform(size, resize=resize, interpolation=spec.interpolation)
    fields = preprocessor_config(test, spec, "white")
    Path(tmp_path, "preprocessor_config.json").write_text(json.dumps(fields))
    if name == "caffe":  # its channels are flipped: a wrong input would be worse than none
        with pytest.raises((OSError, ValueError)):
            transformers.AutoImageProcessor.from_pretrained(tmp_path)
        return
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    to_input = ToInput(spec.mean, spec.std, spec.channel_order, spec.scale)
    compared = 0
    for file in images:
        if file.name not in ("rgb.png", "gray.png", "255x257.png", "517x389.png", "31x31.png"):
            continue
        if resize is not None and rounds_up(Image.open(file).size, resize, size):
            continue
        compared += 1
        expected = to_input(test(load_image(file)))
        computed = processor(Image.open(file).convert("RGB"), return_tensors="pt")
        torch.testing.assert_close(computed["pixel_values"][0], expected, rtol=0, atol=0.01)
    assert (compared > 0) == (name != "rounded_up")


def rounds_up(shape, resize, size):
    """Whether half of an odd margin is rounded up, to the even number; transformers rounds down."""
    margins = [int(resize * side / min(shape)) - size for side in shape]
    return any(round(margin / 2) != margin // 2 for margin in margins)
