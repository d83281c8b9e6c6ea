import shutil
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import dml
from dml.core.errors import ConfigError, UserError
from dml.models.backbones import Backbone, InputSpec
from dml.retrieval import retrieval_metrics
from dml.runs.build import Builder
from dml.runs.experiment import resume
from dml.runs.export import write_forms
from dml.runs.folder.run_folder import load_config
from dml.runs.load import ToPixels
from tests.conftest import run_config


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder"):
        dml.load(tmp_path / "absent")
    _, folder = run_tiny("protocol.epochs=0")
    with pytest.raises(UserError, match=r"\(7, 0\) is no model of .*; its models are \(0, 0\)$"):
        dml.load(folder, repeat=7)
    (folder / "checkpoints/repeat0-fold0/best.pt").write_text("{")
    with pytest.raises(UserError, match=r"best\.pt is not a complete checkpoint .* train the run"):
        dml.load(folder)
    (folder / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        dml.load(folder)


def test_a_stored_config_does_not_read_the_environment(run_tiny, monkeypatch):
    monkeypatch.setenv("A_KEY", "a-secret")
    _, folder = run_tiny("protocol.epochs=0")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(f"{text}note: '${{oc.env:A_KEY}}'\n")
    for read in (dml.load, resume):
        with pytest.raises(
            UserError, match=r"config\.yaml cannot be read: note holds \$\{"
        ) as error:
            read(folder)
        assert "a-secret" not in str(error.value)


def embed(model):
    embedder, transform = model
    assert not embedder.training
    image = Image.effect_mandelbrot((40, 30), (-2, -1, 1, 1), 50)
    with torch.inference_mode():
        return embedder(transform(image)[None])


def test_a_run_with_several_models(run_small, tmp_path):
    folder = run_small()
    with pytest.warns(UserWarning, match=r"has 4 models; this is the first: choose one"):
        first = dml.load(folder)
    models = dml.load_all(folder)
    assert list(models) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert torch.equal(embed(first), embed(models[0, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that is asked for needs no note
        third = dml.load(folder, fold=2)
        assert torch.equal(embed(third), embed(models[0, 2]))
        assert not torch.equal(embed(third), embed(first))
        exported = dml.export(folder, tmp_path / "exported", fold=2)
        assert torch.equal(embed(dml.load(exported)), embed(third))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("background", ["white", "black"])
def test_an_image_as_a_tensor_has_the_pixels_of_the_image(mode, background):
    """Pixels c×H×W, with or without alpha."""
    values = np.random.default_rng(0).integers(0, 256, (6, 5, len(mode)), dtype=np.uint8)
    image = Image.fromarray(values.squeeze(-1) if mode == "L" else values, mode)
    convert = ToPixels(background)
    pixels = convert(torch.from_numpy(values).permute(2, 0, 1))
    assert torch.equal(pixels, convert(image))
    if "A" in mode:
        assert not torch.equal(pixels, ToPixels("blue")(image))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_photos_are_turned_upright_as_dml_embed_does(run_tiny, tmp_path, kind):
    _, folder = run_tiny("protocol.epochs=0")
    embedder, transform = dml.load(folder)
    values = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    embedded = []
    for orientation in (None, 1, 6):
        image = Image.fromarray(values)
        exif = image.getexif()
        if orientation:
            exif[0x112] = orientation
        path = tmp_path / f"{orientation}.{kind.lower()}"
        image.save(path, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
        with Image.open(path) as opened, torch.no_grad():
            mine = embedder(transform(opened)[None])
        of_file = torch.from_numpy(dml.embed(folder, [str(path)]).embeddings)
        torch.testing.assert_close(mine, of_file, rtol=0, atol=2e-3)  # of float16 in files
        embedded.append(mine)
    torch.testing.assert_close(embedded[0], embedded[1])
    assert (embedded[0] - embedded[2]).abs().max() > 0.02


def test_networks_are_on_the_device_that_is_asked_for(run_tiny):
    _, folder = run_tiny("protocol.epochs=0")
    (of_all,) = dml.load_all(folder, device="meta").values()
    for embedder, _ in (dml.load(folder, device="meta"), of_all):
        assert {parameter.device.type for parameter in embedder.parameters()} == {"meta"}


def test_names_of_the_package():
    assert {"load", "load_all", "export"} <= set(dir(dml))
    with pytest.raises(AttributeError, match="module 'dml' has no attribute 'lod'"):
        dml.lod  # noqa: B018


def test_an_export_equals_the_run_without_it(run_tiny, tmp_path):
    summary, run = run_tiny("protocol.epochs=1")
    before, folder = dml.load(run), dml.export(run, tmp_path / "exported")
    shutil.rmtree(run)
    assert torch.equal(embed(before), embed(dml.load(folder)))
    files = {"config.yaml", "model.safetensors", "README.md"}
    assert {path.name for path in folder.iterdir()} == files
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlicense: other")
    assert "mfcwms on digits" in card
    assert f"MAP@R {100 * summary['metrics']['map_at_r']['mean']:.2f}" in card


def test_an_export_of_a_search_has_its_best_values(run_tiny, tmp_path):
    size = "+space={embedder.size:{choices:[6]}}"
    words = ("protocol=holdout", "loss=contrastive", "search=bayes", "search.trials=1", size)
    _, run = run_tiny(*words, "search.startup=1")
    exported = dml.load(dml.export(run, tmp_path / "exported"))
    assert exported[0].embedding_size == 6
    assert torch.equal(embed(exported), embed(dml.load(run)))


def test_onnx(run_tiny, tmp_path):
    pytest.importorskip("onnxruntime")
    _, run = run_tiny("protocol.epochs=0")
    assert write_forms(dml.export(run, tmp_path / "net"), ["onnx"])["model.onnx"] <= 1e-5
    assert (tmp_path / "net" / "model.onnx").is_file()


class Branches(Backbone):
    """A network of one's own, whose code depends on the size of the image, with dropout."""

    input = InputSpec(size=None)
    channels = 8
    kind = "maps"

    def __init__(self, limit=12):
        super().__init__()
        self.limit = limit
        self.stem, self.dropout = nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.5)

    def forward(self, images):
        if images.shape[-1] > self.limit:
            images = nn.functional.avg_pool2d(images, 2)
        elif images.shape[-2] < self.limit:
            images = images.square()
        return self.dropout(self.stem(images)).relu()


HERE, TIMM = __name__, ["backbone=timm", "backbone.weights=none"]
NETWORKS = {
    "digits": ["data=digits", "backbone=small_cnn"],
    "glyphs": ["data=glyphs", "data.reader.classes=8", "data.reader.per_class=9"],
    "lite0": ["data=digits", *TIMM, "backbone.model=tf_efficientnet_lite0"],
    "vit": ["data=digits", *TIMM, "backbone.model=test_vit"],
    "branch": ["data=digits", "backbone=custom", f"backbone._target_={HERE}.Branches"],
    "dropout": ["data=digits", "backbone=custom", f"backbone._target_={HERE}.Branches"],
}
SIZES = {"lite0": 64, "vit": 160, "glyphs": 32}
OTHER = {
    "lite0": ["backbone.input_size=64"],
    "vit": ["backbone.input_size=160"],
    "dropout": ["+backbone.limit=1"],
    "glyphs": ["backbone=small_cnn", "backbone.width=8"],
    "digits": ["backbone.width=8"],
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.promise(
    "guides/use_your_network.md",
    "a network's code depends on the size of the image: its ONNX form is that of the run's images",
)
def test_onnx_has_the_scores_of_the_network(composed, tmp_path, name):
    runtime = pytest.importorskip("onnxruntime")
    words = [*NETWORKS[name], *OTHER.get(name, []), "embedder.size=16", "protocol.epochs=0"]
    _, run = run_config(composed(f"outputs={tmp_path}/outputs", "device=cpu", *words))
    folder = dml.export(run, tmp_path / "net", trust=True)
    assert write_forms(folder, ["onnx"], trust=True)["model.onnx"] <= 1e-5
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    embedder, transform = dml.load(folder, trust=True)
    index = Builder(load_config(folder, trust=True)).index()
    rows = np.flatnonzero(index.roles != "train")[::4]
    images = [transform(Image.fromarray(np.asarray(index.images[row]))) for row in rows]
    images = torch.stack(images)
    assert images.shape[2:] == (SIZES.get(name, 8),) * 2
    scores = []
    with torch.inference_mode():
        expected = embedder(images)
    for batch in (1, 2, 7, len(images)):
        (found,) = session.run(None, {"images": images[:batch].numpy()})
        assert np.abs(found - embedder(images[:batch]).detach().numpy()).max() <= 1e-5
    for embeddings in (expected, torch.from_numpy(found)):
        scores.append(retrieval_metrics(embeddings, index.labels[rows])["map_at_r"])
    # a hundredth of a percent: rounding swaps items at almost equal distances of random networks
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_the_size_of_images_that_are_gone(run_tiny, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    _, run = run_tiny("protocol.epochs=0")
    folder = dml.export(run, tmp_path / "net")

    def gone(self):
        raise UserError("data.root: no folder")

    monkeypatch.setattr(Builder, "index", gone)
    with pytest.warns(UserWarning, match=r"cannot be read.*traced for 64x64 pixels"):
        write_forms(folder, ["onnx"])


def test_the_current_folder_is_a_run_folder(run_tiny, tmp_path, monkeypatch):
    """Whatever its name is where the user stands: `.` has none."""
    _, folder = run_tiny("protocol.epochs=0")
    monkeypatch.chdir(folder)
    for name in (".", "./", f"../{folder.name}", "checkpoints/..", str(folder)):
        dml.load(name)
    dml.export(".", tmp_path / "net")
    monkeypatch.chdir(tmp_path / "net")
    dml.load(".")
    for name in ("", "/", "..", "../.."):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match="is not a run folder"):
            dml.load(name)


def test_the_version_of_the_package_is_an_attribute():
    from importlib.metadata import version

    import dml

    assert dml.__version__ == version("dml-benchmark")
    assert "__version__" in dir(dml)
