"""The wrapper of docs/guides/mteb.md scores a made task as this package scores its images."""

import io
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import dml
from dml.retrieval import mean_average_precision, retrieval_metrics
from dml.runs.export import write_export
from tests.conftest import run_config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "mteb.md"
WRAPPER, USE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
WORDS = ("data=digits", "backbone.width=4", "transform.size=16", "protocol.epochs=0")
DIGITS = 5  # that the photos show


def write_photos(folder):
    """Writes photos of digits, of several modes and sizes; returns files and labels."""
    digits = load_digits(n_class=DIGITS)
    files, labels = [], []
    for row, label in enumerate(digits.target[:120]):
        image = Image.fromarray((digits.images[row] * 15).astype(np.uint8))
        image = image.resize((20 + row % 3, 20)).convert(("L", "RGB", "RGBA", "P")[row % 4])
        files.append(folder / f"kind{label}" / f"{row}.png")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        image.save(files[-1])
        labels.append(int(label))
    return files, labels


def make_task(files, labels):
    """Returns a task of mteb in the form of `CUB200I2IRetrieval`, with other images."""
    datasets = pytest.importorskip("datasets")
    from mteb.tasks.retrieval.eng.cub200_i2i_retrieval import CUB200I2I

    ids = [f"image {row}" for row in range(len(files))]
    columns = {"id": ids, "image": [str(file) for file in files]}
    images = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    relevant = {}
    for query, label in zip(ids, labels, strict=True):
        of_class = [id for id, other in zip(ids, labels, strict=True) if other == label]
        relevant[query] = {id: 1 for id in of_class if id != query}

    class Digits(CUB200I2I):
        def load_data(self, **options):
            split = {"corpus": images, "queries": images, "relevant_docs": relevant}
            self.dataset = {"default": {"test": {**split, "top_ranked": None}}}
            self.data_loaded = True

    return Digits()


@pytest.fixture
def network_of_page(monkeypatch):
    """The class of the page, in a module of the name that the page gives it."""
    pytest.importorskip("mteb")
    module = ModuleType("network_for_mteb")
    exec(compile(WRAPPER, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.Network


@pytest.fixture
def run(composed, tmp_path):
    return run_config(composed(f"outputs={tmp_path}/outputs", "device=cpu", *WORDS))[1]


def test_the_wrapper_is_short():
    assert len([line for line in WRAPPER.splitlines() if line.strip()]) <= 40


@pytest.mark.parametrize("exported", [False, True])
def test_scores_of_mteb_equal_those_of_this_package(
    network_of_page, run, tmp_path, monkeypatch, capsys, exported
):
    import mteb

    files, labels = write_photos(tmp_path / "photos")
    source = write_export(run, tmp_path / "net").folder if exported else run
    task = make_task(files, labels)
    monkeypatch.setattr(mteb, "get_tasks", lambda tasks: [task])
    capsys.readouterr()
    exec(compile(USE.replace("<run folder>", str(source)), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.split()
    embeddings = dml.embed(source, [str(file) for file in files]).embeddings
    recall = retrieval_metrics(embeddings, labels, recall_at=(1,))["recall_at_1"]
    average = mean_average_precision(embeddings, labels)
    assert 0.3 < average < recall < 1
    assert printed[0] == "CUB200I2IRetrieval"
    assert [float(text) for text in printed[1:]] == pytest.approx([recall, average], abs=1e-5)


def test_the_wrapper_embeds_as_the_network(network_of_page, run, tmp_path):
    files, _ = write_photos(tmp_path / "photos")
    network = network_of_page(str(run))
    contents = [io.BytesIO(file.read_bytes()) for file in files[:6]]
    batches = [
        {"image": [Image.open(file) for file in part]} for part in (contents[:4], contents[4:])
    ]
    embeddings = network.encode(batches, task_metadata=None)
    expected = dml.embed(run, [str(file) for file in files[:6]]).embeddings
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)
    distances = -network.similarity(embeddings, embeddings)
    assert not distances.diagonal().any()
    pairs = -network.similarity_pairwise(embeddings[:5], embeddings[1:])
    np.testing.assert_allclose(pairs, distances.diagonal(1), atol=1e-6)
    assert "/" not in network.mteb_model_meta.name.removeprefix("dml/")
