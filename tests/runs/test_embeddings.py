import sys

import numpy as np
import pytest
import torch
from torch import nn

from dml.config.identity import digest
from dml.core.errors import ConfigError, UserError
from dml.data.image_index import ImageIndex
from dml.data.loaders import LoaderOptions
from dml.data.protocol import Split
from dml.data.transforms import ToInput
from dml.retrieval import embeddings
from dml.runs.embeddings import Evaluator


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2), "labels": np.arange(2)}, "has no array embeddings"),
        ({"embeddings": np.eye(2), "labels": np.arange(3)}, r"must have shape \(2,\)"),
        ({"embeddings": np.arange(4), "labels": np.arange(4)}, "must be a floating-point matrix"),
        ({"embeddings": np.array([{}]), "labels": np.arange(1)}, "embeddings holds Python objects"),
        ({"embeddings": np.eye(2) * np.nan, "labels": np.zeros(2, int)}, "NaN"),
        ({"embeddings": np.eye(2), "labels": np.arange(2)}, "no query has a relevant item"),
        (
            {"embeddings": np.eye(2), "labels": np.zeros(2, int)}
            | {"gallery_embeddings": np.eye(3), "gallery_labels": np.zeros(3, int)},
            "one dimension, got 2 and 3",
        ),
    ],
)
def test_wrong_arrays(evaluated, tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message):
        evaluated(f"embeddings={tmp_path}/x.npz")


def test_types_of_other_software(evaluated, tmp_path):
    arrays = {"embeddings": np.eye(2)[[0, 0, 1, 1]], "labels": np.array([0, 0, 1, 1])}
    for floats, integers in (("f2", "u1"), (">f8", ">i4"), ("g", "u8")):
        types = {"embeddings": floats, "labels": integers}
        np.savez(tmp_path / "x.npz", **{k: v.astype(types[k]) for k, v in arrays.items()})
        assert evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]["map_at_r"] == 1


def test_classes_have_one_number_in_queries_and_gallery():
    labels = np.array([0, 1, 2, 2, 3, 3])
    roles = np.array(["gallery"] * 2 + ["query", "gallery"] * 2)
    pixels = np.zeros((6, 2, 2, 3), np.uint8)
    index = ImageIndex("x", pixels, labels, roles)
    split = Split(index.subset("query"), index.subset("gallery"))
    options = LoaderOptions(ToInput((0,) * 3, (1,) * 3), torch.device("cpu"))
    made = Evaluator(split, nn.Identity(), options, batch_size=4).embed(nn.Flatten())
    assert made.query_labels.tolist() == [2, 3]
    assert made.gallery_labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 8])
def test_rows_are_those_of_the_images_whatever_the_batches(batch_size):
    pixels = np.arange(7, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    index = ImageIndex("x", pixels, np.array([0, 0, 0, 0, 1, 1, 1]), np.array(["test"] * 7))
    split = Split(index.subset("test"))
    options = LoaderOptions(ToInput((0,) * 3, (1,) * 3), torch.device("cpu"))
    made = Evaluator(split, nn.Identity(), options, batch_size).embed(nn.Flatten())
    expected = torch.arange(7.0)[:, None] / 255 * torch.ones(12)
    torch.testing.assert_close(made.query, expected)


@pytest.fixture
def backends(monkeypatch):
    """The backends that `retrieval_metrics` was called with."""
    used, retrieval_metrics = [], embeddings.retrieval_metrics

    def record(*arguments, backend, **options):
        used.append(backend)
        return retrieval_metrics(*arguments, backend=backend, **options)

    monkeypatch.setattr(embeddings, "retrieval_metrics", record)
    return used


def test_models_alone_and_joined_are_scored_by_the_backend(run_small, evaluated, backends):
    folder = run_small("evaluation.backend=torch")
    assert set(backends) == {"torch"}
    evaluated(f"run={folder}", "evaluation.backend=auto", given={"run", "evaluation.backend"})
    assert backends[-1] == "auto"


def test_the_backend_is_not_part_of_the_identity(composed):
    assert digest(composed("evaluation.backend=torch")) == digest(composed())


def test_faiss_that_is_not_installed_is_refused_in_one_line(run_tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = r"^evaluation.backend: 'faiss' is not installed: pip install faiss-cpu; .*$"
    with pytest.raises(ConfigError, match=message):
        run_tiny("evaluation.backend=faiss")
