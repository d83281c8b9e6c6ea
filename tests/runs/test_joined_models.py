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


def join(folder, repeat, normalize):
    """Concatenated embeddings of the models of a repeat, and the labels."""
    models, labels = [], None
    for fold in range(FOLDS):
        job = f"checkpoints/repeat{repeat}-fold{fold}"
        with np.load(folder / job / "test_embeddings.npz") as file:
            models.append(file["embeddings"].astype(np.float64))
            labels = file["labels"]
    return normalize(np.concatenate([normalize(model) for model in models], axis=1)), labels


@pytest.mark.parametrize(("protocol", "normalize"), [("mlrc_ccp", clip), ("mlrc", unit)])
def test_joined_models_are_normalized_as_each_of_them(run_small, monkeypatch, protocol, normalize):
    head = Embedder._apply_head
    # Short vectors, which clipping leaves as they are: their lengths differ.
    monkeypatch.setattr(Embedder, "_apply_head", lambda self, pooled: 0.2 * head(self, pooled))
    folder = run_small(f"protocol={protocol}", "loss=contrastive")
    expected = map_at_r(*join(folder, 0, normalize))
    summary = json.loads((folder / "summary.json").read_text())
    found = summary["concatenated"]["metrics"]["map_at_r"]["mean"]
    assert found == pytest.approx(expected, abs=1e-9)
    wrong = map_at_r(*join(folder, 0, unit if normalize is clip else clip))
    assert (abs(wrong - expected) > 1e-4) == (protocol == "mlrc_ccp")


def test_models_without_normalization_are_joined_as_unit_vectors_repeat_by_repeat(
    run_small, monkeypatch
):
    """Else the model with the longest vectors would decide."""
    head = Embedder._apply_head

    def of_another_length(self, pooled):
        return head(self, pooled) * (1 + pooled.sum(dim=1, keepdim=True).sin().abs())

    monkeypatch.setattr(Embedder, "_apply_head", of_another_length)
    words = ("loss=triplet", "embedder.normalize=none", "protocol.repeats=2")
    folder = run_small(*words)
    summary = json.loads((folder / "summary.json").read_text())
    stored = summary["concatenated"]["repeats"]
    expected = [map_at_r(*join(folder, repeat, unit)) for repeat in range(2)]
    assert [each["metrics"]["map_at_r"] for each in stored] == pytest.approx(expected, abs=1e-9)
    assert summary["concatenated"]["metrics"]["map_at_r"]["mean"] == pytest.approx(
        np.mean(expected), abs=1e-9
    )
    unchanged = [map_at_r(*join(folder, repeat, lambda x: x)) for repeat in range(2)]
    assert unchanged != pytest.approx(expected, abs=1e-4)
    assert expected[0] != pytest.approx(expected[1], abs=1e-4)
