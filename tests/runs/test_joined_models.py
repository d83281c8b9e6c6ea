"""Scores of joined models, computed anew from the stored embeddings by NumPy."""

import json

import numpy as np
import pytest

from dml.models.embedder import Embedder

FOLDS = 4


def clip(vectors):
    return vectors / np.maximum(1, np.linalg.norm(vectors, axis=1, keepdims=True))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def map_at_r(vectors, labels):
    """Musgrave et al. 2020, Section 3.2, with a full sort for each query."""
    values = []
    for query in range(len(labels)):
        distances = ((vectors - vectors[query]) ** 2).sum(axis=1)
        distances[query] = np.inf
        relevant = (labels == labels[query]).sum() - 1
        hits = labels[np.argsort(distances, kind="stable")[:relevant]] == labels[query]
        precisions = np.cumsum(hits) / np.arange(1, relevant + 1)
        values.append((precisions * hits).sum() / relevant)
    return np.mean(values)


@pytest.mark.parametrize(("protocol", "normalize"), [("mlrc_ccp", clip), ("mlrc", unit)])
def test_joined_models_are_normalized_as_each_of_them(run_small, monkeypatch, protocol, normalize):
    head = Embedder._apply_head
    # Short vectors, which clipping leaves as they are: their lengths differ.
    monkeypatch.setattr(Embedder, "_apply_head", lambda self, pooled: 0.2 * head(self, pooled))
    folder = run_small(f"protocol={protocol}", "loss=contrastive")
    models, labels = [], None
    for fold in range(FOLDS):
        with np.load(folder / f"checkpoints/repeat0-fold{fold}/test_embeddings.npz") as file:
            models.append(file["embeddings"].astype(np.float64))
            labels = file["labels"]
    joined = normalize(np.concatenate([normalize(model) for model in models], axis=1))
    expected = map_at_r(joined, labels)
    summary = json.loads((folder / "summary.json").read_text())
    found = summary["concatenated"]["metrics"]["map_at_r"]["mean"]
    assert found == pytest.approx(expected, abs=1e-9)
    other = unit if normalize is clip else clip
    wrong = map_at_r(other(np.concatenate([other(model) for model in models], axis=1)), labels)
    assert (abs(wrong - expected) > 1e-4) == (protocol == "mlrc_ccp")
