"""The service and the vector database of docs/guides/serve.md, with photos of a folder.

Where onnxruntime is missing, a stand-in runs the network by PyTorch.
"""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import dml
from dml.models.traced_form import make_exported
from dml.runs import exported_forms
from dml.runs.export import write_export
from tests.conftest import run_config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "serve.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
SERVICE = next(block for block in BLOCKS if "FastAPI()" in block)
DATABASE = next(block for block in BLOCKS if "lancedb" in block)
JPEG = {"Content-Type": "image/jpeg"}


class Session:
    """A session of onnxruntime for a file that holds a program of torch."""

    def __init__(self, path, providers):
        self.extra = {"metadata.json": ""}
        self.network = torch.export.load(path, extra_files=self.extra).module()

    def run(self, outputs, inputs):
        return [self.network(torch.from_numpy(inputs["images"])).numpy(force=True)]

    def get_modelmeta(self):
        texts = {}
        for key, value in json.loads(self.extra["metadata.json"]).items():
            texts[key] = value if isinstance(value, str) else json.dumps(value)
        return SimpleNamespace(custom_metadata_map=texts)


@pytest.fixture
def workplace(composed, tmp_path, monkeypatch):
    """The current folder of the service: `my-net`, `photos.parquet` and `new.jpg`."""
    pytest.importorskip("pyarrow")
    if importlib.util.find_spec("onnxruntime") is None:
        monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
        stand_in = ("model.onnx", make_exported, exported_forms._save_exported)
        monkeypatch.setitem(exported_forms.FORMS, "onnx", stand_in)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    words = ("data=digits", "backbone.width=4", "transform.size=24", "protocol.epochs=0")
    run = run_config(composed(f"outputs={tmp_path}/outputs", "device=cpu", *words))[1]
    write_export(run, tmp_path / "my-net", onnx=True)
    for number in range(12):
        path = tmp_path / "photos" / f"kind{number // 4}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (5, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((37, 45)).save(path)
    dml.embed("my-net", "photos", "photos.parquet")
    (tmp_path / "new.jpg").write_bytes((tmp_path / "photos/kind1/6.jpg").read_bytes())
    yield tmp_path
    sys.modules.pop("embed_onnx", None)


def serve(names):
    """Runs the service of the page; returns a client of it."""
    pytest.importorskip("httpx")
    testclient = pytest.importorskip("fastapi.testclient")
    exec(compile(SERVICE, str(PAGE), "exec"), names)
    return testclient.TestClient(names["app"])


def nearest(count):
    """Paths and distances of the neighbors of `new.jpg`, by the embeddings of the network."""
    stored = dml.embed("my-net", "photos", "photos.parquet")
    query = dml.embed("my-net", ["new.jpg"]).embeddings
    distances = np.linalg.norm(stored.embeddings - query, axis=1)
    order = np.argsort(distances)[:count]
    return stored.paths[order].tolist(), distances[order]


@pytest.mark.promise(
    "guides/serve.md",
    "a body is sent that is no image: the answer has status 422, and the service goes on",
)
def test_the_service_returns_the_nearest_photos(workplace):
    client = serve({})
    content = (workplace / "new.jpg").read_bytes()
    expected, distances = nearest(3)
    for _ in range(2):
        answer = client.post("/neighbors?k=3", content=content, headers=JPEG)
        assert [row["path"] for row in answer.json()] == expected
        assert expected[0] == "photos/kind1/6.jpg"
        classes = [row["label"] for row in answer.json()]
        assert classes == [Path(path).parent.name for path in expected]
        computed = [row["distance"] for row in answer.json()]
        np.testing.assert_allclose(computed, distances, atol=1e-5)
        for body in (b"", b"text", content[:300], b"\x89PNG\r\n\x1a\n"):
            assert client.post("/neighbors", content=body, headers=JPEG).status_code == 422
    assert len(client.post("/neighbors", content=content, headers=JPEG).json()) == 5
    assert len(client.post("/neighbors?k=99", content=content, headers=JPEG).json()) == 12
    for wrong in ("0", "-1", "x"):
        answer = client.post(f"/neighbors?k={wrong}", content=content, headers=JPEG)
        assert answer.status_code == 422


def test_photos_without_classes_have_no_label(workplace):
    shutil.copy("new.jpg", "photos/9.jpg")  # outside of the folders of classes
    dml.embed("my-net", "photos", "photos.parquet")
    content = (workplace / "new.jpg").read_bytes()
    answer = serve({}).post("/neighbors?k=2", content=content, headers=JPEG).json()
    assert [row["label"] for row in answer] == [None, None]
    assert {row["path"] for row in answer} == {"photos/9.jpg", "photos/kind1/6.jpg"}


@pytest.mark.promise(
    "guides/serve.md",
    "the embeddings are of another network: the service does not start, and one line says so",
)
def test_embeddings_of_another_network_are_refused(workplace, composed):
    words = ("data=digits", "backbone.width=4", "transform.size=24", "protocol.epochs=0", "seed=1")
    run = run_config(composed(f"outputs={workplace}/outputs", "device=cpu", *words))[1]
    dml.embed(run, "photos", "photos.parquet", overwrite=True)
    with pytest.raises(SystemExit, match=r"photos\.parquet is of another network than my-net"):
        serve({})


def test_a_photo_of_another_size_than_that_of_the_network_is_refused(workplace):
    settings = workplace / "my-net" / "preprocessor_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_resize": False}))
    content = (workplace / "new.jpg").read_bytes()
    answer = serve({}).post("/neighbors", content=content, headers=JPEG)
    expected = {"detail": "the image: 45x37 pixels; the network takes 24x24"}
    assert (answer.status_code, answer.json()) == (422, expected)


def test_the_vector_database_returns_the_nearest_photos(workplace, capsys):
    pytest.importorskip("lancedb")
    expected, distances = nearest(3)
    capsys.readouterr()  # of the training
    for _ in range(2):  # also into a database that exists
        exec(compile(DATABASE, str(PAGE), "exec"), {})
        printed = capsys.readouterr().out
        rows = [line.split() for line in printed.splitlines()]
        assert [row[0] for row in rows] == expected
        np.testing.assert_allclose([float(row[1]) for row in rows], distances, atol=1e-5)
