"""Forms of an export for other programs: files, metadata, and embeddings without this package."""

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import dml
from dml.core.errors import UserError
from dml.models.embedder import hash_weights
from dml.runs import exported_forms
from dml.runs.export import write_export, write_forms
from dml.runs.folder.exported_folder import SCRIPT
from tests.commands import export as export_command
from tests.conftest import compose_config, run_config, without_pictures
from tests.runs.test_preprocessor import write_images

EQUAL = "model.pt2   embeddings equal PyTorch's"

EXPORTED = {"config.yaml", "model.safetensors", "README.md", "preprocessor_config.json"}
TIMM = ["data=digits", "backbone=timm", "backbone.weights=none"]
NETWORKS = {
    "small_cnn": ["data=glyphs", "data.reader.classes=8", "data.reader.per_class=9"],
    "lite0": [*TIMM, "backbone.model=tf_efficientnet_lite0", "backbone.input_size=64"],
    "vit": [*TIMM, "backbone.model=test_vit", "backbone.input_size=160"],
    "bicubic": [*TIMM, "backbone.model=test_vit", "backbone.input_size=160"],
}
NETWORKS["small_cnn"] += ["backbone=small_cnn", "backbone.width=8"]
NETWORKS["resized"] = [*NETWORKS["small_cnn"], "transform.size=24"]
NETWORKS["bicubic"] += ["backbone.interpolation=bicubic", "backbone.crop_share=null"]
BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Returns a run of one of `NETWORKS`, which is made once."""
    runs = {}

    def build(name, *more):
        if (name, *more) not in runs:
            folder = tmp_path_factory.mktemp("runs")
            words = [*NETWORKS[name], "embedder.size=16", "protocol.epochs=0", *more]
            with without_pictures():
                _, run = run_config(compose_config(f"outputs={folder}", "device=cpu", *words))
            runs[name, *more] = run
        return runs[name, *more]

    return build


@pytest.fixture(scope="module")
def export_of(run_of, tmp_path_factory):
    """Returns an export of one of `NETWORKS` with a form, made once: it must not be changed."""
    exports = {}

    def build(name, form):
        if form == "onnx":
            pytest.importorskip("onnxruntime")
        if (name, form) not in exports:
            folder = tmp_path_factory.mktemp("exports") / "net"
            exports[name, form] = write_export(run_of(name), folder, **{form: True}).folder
        return exports[name, form]

    return build


def run_without(names, code, *arguments):
    """Runs code in a process that cannot import some packages, far from this repository."""
    text = BLOCKED.format(names=names) + textwrap.dedent(code)
    words = [sys.executable, "-c", text, *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    paths = [path for path in sys.path if path.endswith(("site-packages", "onnxlibs"))]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def embed_as_loaded(folder, files):
    """Embeds files as a user of `dml.load` does, upright."""
    embedder, transform = dml.load(folder)
    rows = []
    for file in files:
        with Image.open(file) as image, torch.inference_mode():
            rows.append(embedder(transform(ImageOps.exif_transpose(image))[None]))
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_script_embeds_without_this_package_and_torch(export_of, tmp_path, name):
    net = export_of(name, "onnx")
    files = write_images(tmp_path / "images")
    if name == "small_cnn":  # whose images are not resized
        files = [tmp_path / "x.png"]
        Image.effect_noise((32, 32), 50).save(files[0])
    code = """
    import numpy
    sys.path.insert(0, sys.argv[1])
    from embed_onnx import embed
    numpy.save(sys.argv[2], embed(sys.argv[3:]))
    assert not {"dml", "torch"} & sys.modules.keys()
    """
    run_without(["dml", "torch", "torchvision"], code, net, tmp_path / "x.npy", *files)
    embedded = np.load(tmp_path / "x.npy")
    assert np.abs(embedded - embed_as_loaded(net, files)).max() <= 1e-5
    by_command = dml.embed(net, [str(file) for file in files])
    assert np.abs(embedded - by_command.embeddings).max() <= 1e-5


def test_the_script_is_a_program(export_of, tmp_path):
    net = export_of("lite0", "onnx")
    Image.effect_noise((20, 30), 50).save(tmp_path / "x.png")
    code = (
        "import runpy; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    line = run_without(["dml", "torch"], code, net / SCRIPT, tmp_path / "x.png")
    name, *numbers = line.split()
    assert name == str(tmp_path / "x.png")
    expected = embed_as_loaded(net, [tmp_path / "x.png"])[0]
    np.testing.assert_allclose(np.array(numbers, dtype=float), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["small_cnn", "vit"])
def test_a_program_of_torch_embeds_without_this_package(export_of, tmp_path, name):
    net = export_of(name, "torch_export")
    assert {path.name for path in net.iterdir()} == EXPORTED | {"model.pt2"}
    embedder, _ = dml.load(net)
    side = {"small_cnn": 32, "vit": 160}[name]
    images = torch.rand(5, 3, side, side)
    torch.save(images, tmp_path / "images.pt")
    code = """
    import torch
    metadata = {"metadata.json": ""}
    network = torch.export.load(sys.argv[1], extra_files=metadata).module()
    images = torch.load(sys.argv[2])
    for count in (1, 5):
        torch.save(network(images[:count]), sys.argv[3] + str(count))
    assert "dml" not in sys.modules
    print(metadata["metadata.json"])
    """
    blocked = ["dml", "timm", "torchvision"]
    printed = run_without(blocked, code, net / "model.pt2", tmp_path / "images.pt", tmp_path / "x")
    with torch.inference_mode():
        expected = embedder(images)
    for count in (1, 5):
        computed = torch.load(tmp_path / f"x{count}")
        torch.testing.assert_close(computed, expected[:count], rtol=0, atol=1e-5)
    assert json.loads(printed)["image_size"] == [side, side]


def test_a_form_says_what_it_takes_and_of_which_run_it_is(run_of, export_of, tmp_path):
    run, net = run_of("vit"), export_of("vit", "torch_export")
    metadata = {"metadata.json": ""}
    torch.export.load(net / "model.pt2", extra_files=metadata)
    embedder, _ = dml.load(net)
    assert json.loads(metadata["metadata.json"]) == {
        "image_size": [160, 160],
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "rescale_factor": 1 / 255,
        "channel_order": "rgb",
        "embedding_size": 16,
        "normalize": "l2",
        "run_digest": run.name.partition("-")[2],
        "weights_digest": hash_weights(embedder),
    }
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    made_by = dml.embed(net, [str(tmp_path / "x.png")]).made_by
    assert made_by["weights"] == hash_weights(embedder)


def test_the_metadata_of_onnx_are_those_of_torch(export_of):
    runtime = pytest.importorskip("onnxruntime")
    net = export_of("vit", "onnx")
    session = runtime.InferenceSession(net / "model.onnx", providers=["CPUExecutionProvider"])
    stored = session.get_modelmeta().custom_metadata_map
    texts, of_torch = {}, export_of("vit", "torch_export")
    torch.export.load(of_torch / "model.pt2", extra_files=(extra := {"metadata.json": ""}))
    for key, value in json.loads(extra["metadata.json"]).items():
        texts[key] = value if isinstance(value, str) else json.dumps(value)
    assert {key: stored[key] for key in texts} == texts
    (images,), (embeddings,) = session.get_inputs(), session.get_outputs()
    assert (images.name, images.shape) == ("images", ["batch", 3, 160, 160])
    assert (embeddings.name, embeddings.shape) == ("embeddings", ["batch", 16])


def test_the_digest_of_a_search_is_that_of_its_folder(run_tiny, tmp_path):
    size = "+space={embedder.size:{choices:[6]}}"
    words = ("protocol=holdout", "loss=contrastive", "search=bayes", "search.trials=1", size)
    _, run = run_tiny(*words, "search.startup=1")
    net = write_export(run, tmp_path / "net", torch_export=True).folder
    torch.export.load(net / "model.pt2", extra_files=(extra := {"metadata.json": ""}))
    metadata = json.loads(extra["metadata.json"])
    assert metadata["run_digest"] == run.name.partition("-")[2]
    assert metadata["embedding_size"] == 6


def test_large_weights_are_in_a_file_beside_the_network(run_of, tmp_path, monkeypatch):
    """As above 2 GB."""
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(
        "torch.onnx.ONNXProgram.save",
        lambda program, path: SAVE(program, path, external_data=True),
    )
    net = write_export(run_of("small_cnn"), tmp_path / "net", onnx=True).folder
    assert (net / "model.onnx.data").is_file()
    runtime.InferenceSession(net / "model.onnx", providers=["CPUExecutionProvider"])
    write_export(run_of("small_cnn"), net)
    assert not (net / "model.onnx.data").exists()


SAVE = torch.onnx.ONNXProgram.save


class Halves(torch.nn.Module):
    """A transform of one's own."""

    def __init__(self, train, size):
        super().__init__()

    def forward(self, image):
        return image[:, ::2, ::2]


def test_a_transform_of_the_user_is_left_out_with_a_warning(run_of, tmp_path):
    run = run_of("small_cnn", f"transform._target_={__name__}.Halves", "transform.size=null")
    with pytest.warns(UserWarning, match=r"transform\._target_: .* cannot describe"):
        net = write_export(run, tmp_path / "net", torch_export=True, trust=True).folder
    files = EXPORTED - {"preprocessor_config.json"} | {"model.pt2"}
    assert {path.name for path in net.iterdir()} == files


@pytest.fixture(scope="module")
def whole_net(run_of, tmp_path_factory):
    """An export with all files for other programs; its ONNX form is a stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(exported_forms.FORMS, "onnx", ("model.onnx", stand_in, save_text))
        folder, forms = tmp_path_factory.mktemp("whole") / "net", {"onnx": True}
        return write_export(run_of("small_cnn"), folder, torch_export=True, **forms).folder


@pytest.fixture
def net(whole_net, tmp_path, monkeypatch):
    """A copy of an export with all files, in which ONNX forms are stand-ins."""
    monkeypatch.setitem(exported_forms.FORMS, "onnx", ("model.onnx", stand_in, save_text))
    return shutil.copytree(whole_net, tmp_path / "net")


def stand_in(network, height, width, may_be_free):
    return exported_forms.TracedForm(None, 0.0, True)


def save_text(form, path, metadata):
    path.write_text(json.dumps(metadata))


ALL = EXPORTED | {"model.onnx", "model.pt2", "embed_onnx.py"}


def test_an_export_replaces_all_files_of_an_earlier_one(net, run_of):
    assert {path.name for path in net.iterdir()} == ALL
    assert json.loads((net / "model.onnx").read_text())["image_size"] is None  # any
    script = (net / SCRIPT).read_text()
    write_export(run_of("small_cnn", "seed=1"), net)
    assert {path.name for path in net.iterdir()} == EXPORTED - {"preprocessor_config.json"}
    write_export(run_of("small_cnn"), net, onnx=True)
    assert (net / SCRIPT).read_text() == script


def edit_text(path):
    path.write_text(path.read_text().replace("CLIPImageProcessor", "ViTImageProcessor") + "\n ")


def edit_settings(path):
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "background": "black"}))


def edit_script(path):
    path.write_text(path.read_text().replace("THIN = 10", "THIN = 11"))


def add_line(path):
    path.write_text(path.read_text() + "print(embed([]))\n")


def replace_by_text(path):
    path.write_text("mine")


def replace_by_program(path):
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.rand(1, 2),))
    torch.export.save(program, path, extra_files={"metadata.json": '{"mine": 1}'})


def replace_by_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        (SCRIPT, edit_script),
        (SCRIPT, add_line),
        (SCRIPT, replace_by_text),
        (SCRIPT, replace_by_link),
        ("preprocessor_config.json", edit_text),
        ("preprocessor_config.json", edit_settings),
        ("preprocessor_config.json", replace_by_text),
        ("model.pt2", replace_by_text),
        ("model.pt2", replace_by_program),
    ],
)
@pytest.mark.promise(
    "guides/serve.md",
    "a file of an export was edited, or is yours: a later export to the folder is refused, and "
    "one line names the file",
)
def test_files_that_were_edited_or_are_of_the_user_stay(net, name, edit, capsys):
    edit(net / name)
    before = {path.name: path.read_bytes() for path in net.iterdir()}
    assert export_command([str(net.parent / "net"), str(net)]) == 1
    assert "is the folder that is exported" in capsys.readouterr().err
    copy = dml.export(net, net.parent / "copy")
    assert export_command([str(copy), str(net)]) == 1
    assert f"holds {name}, which no export has written" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in net.iterdir()} == before


def test_a_folder_whose_script_was_imported_is_replaced(net, run_of):
    cache = net / "__pycache__"
    cache.mkdir()
    (cache / "embed_onnx.cpython-311.pyc").write_bytes(b"of Python")
    write_export(run_of("small_cnn"), net, torch_export=True)
    assert {path.name for path in net.iterdir()} == EXPORTED | {"model.pt2"}
    cache.mkdir()
    (cache / "embed_onnx.cpython-311.pyc").write_bytes(b"of Python")
    (cache / "mine.cpython-311.pyc").write_bytes(b"mine")
    with pytest.raises(UserError, match="holds __pycache__, which no export has written"):
        write_export(run_of("small_cnn"), net, torch_export=True)
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_have_the_mode_of_the_umask(run_of, tmp_path, umask):
    forms = {"onnx": importlib.util.find_spec("onnxruntime") is not None, "torch_export": True}
    before = os.umask(umask)
    try:
        net = write_export(run_of("small_cnn"), tmp_path / "net", **forms).folder
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in net.iterdir()}
    assert {"model.pt2", "preprocessor_config.json"} <= modes.keys()
    assert set(modes.values()) == {0o666 & ~umask}


def test_the_command_prints_the_difference_of_each_form(run_of, tmp_path, capsys):
    words = [str(run_of("small_cnn")), str(tmp_path / "net"), "--torch-export"]
    assert export_command(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith(("model.pt2   differs from PyTorch by at most ", EQUAL))


@pytest.mark.parametrize(
    ("difference", "text"),
    [(0.0, EQUAL), (3e-7, "model.pt2   differs from PyTorch by at most 3e-07")],
)
def test_an_equal_form_is_called_equal(run_of, monkeypatch, capsys, difference, text):
    made = SimpleNamespace(folder="net", card_kept=False, differences={"model.pt2": difference})
    monkeypatch.setattr("dml.runs.export.write_export", lambda **options: made)
    assert export_command([str(run_of("small_cnn")), "net"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == text


def test_a_form_that_fails_leaves_the_earlier_export(net, run_of, monkeypatch):
    def fail(network, height, width, may_be_free):
        raise UserError("torch_export: this network has no such form: x")

    forms = ("model.pt2", fail, exported_forms._save_exported)
    monkeypatch.setitem(exported_forms.FORMS, "torch_export", forms)
    before = {path.name: path.read_bytes() for path in net.iterdir()}
    with pytest.raises(UserError, match="no such form"):
        write_export(run_of("small_cnn", "seed=1"), net, torch_export=True)
    assert {path.name: path.read_bytes() for path in net.iterdir()} == before
    assert [path.name for path in Path(net.parent).glob(".net*")] == []


def test_forms_of_a_folder_that_is_none(tmp_path):
    with pytest.raises(UserError, match="is not a run folder"):
        write_forms(tmp_path, ["torch_export"])
