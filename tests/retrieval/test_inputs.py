"""Embeddings and labels of other software: what a score takes, and that each form has one score."""

import numpy as np
import pandas as pd
import pytest
import torch

from dml import retrieval

NAMES = ("anna's", "brown", "costa's")
LABELS = np.arange(12) // 4
# float32 and float64 have the same distances of these.
VECTORS = np.random.default_rng(0).integers(-16, 16, (12, 4)).astype(np.float32) / 8

FORMS = {
    "list": VECTORS.tolist(),
    "list of tensors": list(torch.tensor(VECTORS)),
    "table": pd.DataFrame(VECTORS, index=range(100, 112)),
    "other byte order": VECTORS.astype(VECTORS.dtype.newbyteorder("S")),
    "negative strides": VECTORS[::-1].copy()[::-1],
    "columns": np.asfortranarray(VECTORS),
    "with a gradient": torch.tensor(VECTORS, requires_grad=True),
}
LABEL_FORMS = {
    "list": LABELS.tolist(),
    "list of tensors": list(torch.tensor(LABELS)),
    "column": pd.Series(LABELS, index=range(100, 112)),
    "categories": pd.Series(LABELS).astype("category"),
    "nullable": pd.Series(LABELS, dtype="Int64"),
    "whole numbers": LABELS.astype(float),
    "other byte order": LABELS.astype(LABELS.dtype.newbyteorder("S")),
    "negative strides": LABELS[::-1].copy()[::-1],
    "names": [NAMES[label] for label in LABELS],
    "names of NumPy": list(np.array(NAMES)[LABELS]),
    "array of names": np.array(NAMES)[LABELS],
    "bytes": np.char.encode(np.array(NAMES)[LABELS]),
    "column of names": pd.Series([NAMES[label] for label in LABELS]),
    "categories of names": pd.Series([NAMES[label] for label in LABELS], dtype="category"),
}
SCORES = {
    "retrieval_metrics": retrieval.retrieval_metrics,
    "mean_average_precision": retrieval.mean_average_precision,
    "alignment": retrieval.alignment,
    "inter_class_distance": retrieval.inter_class_distance,
    "covering_radius": retrieval.covering_radius,
    "cluster_agreement": lambda *points: retrieval.cluster_agreement(*points, ["nmi", "ami"]),
    "match_errors": lambda *points: retrieval.match_errors_at(*points, [1.0, 2.0]),
    "match_error_rates": lambda *points: retrieval.match_error_rates(*points, [0.1]),
    "class_means": lambda *points: retrieval.class_mean_accuracy(*points, *points),
    "neighbors": lambda *points: retrieval.neighbor_accuracy(*points, *points),
    "gallery": lambda *points: retrieval.retrieval_metrics(*points, *points),
    "proxies": lambda *points: retrieval.proxy_alignment(*points, *points),
    "k_center": lambda vectors, _: retrieval.greedy_k_center(vectors, 3)[0].tolist(),
    "uniformity": lambda vectors, _: retrieval.uniformity(vectors),
    "nearest": lambda vectors, _: retrieval.nearest_neighbors(vectors, k=3).indices.tolist(),
    "concatenated": lambda vectors, _: round(float(retrieval.concatenate([vectors] * 2).sum()), 4),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.promise(
    "python.md",
    "Embeddings are tensors, arrays, lists or tables of pandas",
)
def test_embeddings_of_other_software(score):
    expected = SCORES[score](torch.tensor(VECTORS), torch.tensor(LABELS))
    for form, vectors in FORMS.items():
        assert SCORES[score](vectors, LABELS) == expected, form


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.promise(
    "python.md",
    "Labels are integers or strings; a missing one is refused.",
)
def test_labels_of_other_software(score):
    expected = SCORES[score](torch.tensor(VECTORS), torch.tensor(LABELS))
    for form, labels in LABEL_FORMS.items():
        assert SCORES[score](VECTORS, labels) == expected, form


@pytest.mark.parametrize("gallery", ["array of names", "bytes", "column of names"])
def test_names_of_queries_and_gallery_are_one_class(gallery):
    queries, labels = VECTORS[8:], LABEL_FORMS["names"][8:]  # a class that is not the first
    expected = retrieval.retrieval_metrics(queries, LABELS[8:], VECTORS + 1, LABELS)
    found = retrieval.retrieval_metrics(queries, labels, VECTORS + 1, LABEL_FORMS[gallery])
    assert found == expected
    proxies = retrieval.proxy_alignment(queries, labels, VECTORS + 1, LABEL_FORMS[gallery])
    assert proxies == retrieval.proxy_alignment(queries, LABELS[8:], VECTORS + 1, LABELS)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (VECTORS.astype(np.longdouble), "must be a floating-point matrix .* got float128"),
        (LABELS[:, None], "must be a floating-point matrix .* got int64"),
        (pd.DataFrame({"x": list("ab") * 6}), "must be a floating-point matrix .* got object"),
        ([[1.0, 2.0], [1.0]] * 6, "cannot be read as an array"),
        ([torch.zeros(2), torch.zeros(3)] * 6, "cannot be read as an array"),
        (None, "must be a floating-point matrix"),
        (VECTORS[:0], "is empty"),
    ],
)
@pytest.mark.parametrize("score", ["retrieval_metrics", "alignment", "match_errors"])
def test_other_embeddings_are_refused_in_a_line(score, vectors, message):
    with pytest.raises(ValueError, match=f"^embeddings {message}") as refused:
        SCORES[score](vectors, LABELS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "positions", [["a", "b"], [0.0, 1.0], [True, False], [0], [[0, 1]], np.array([0, None])]
)
def test_positions_are_integers(positions):
    with pytest.raises(ValueError, match=r"^self_index must be 2 integers"):
        retrieval.retrieval_metrics(VECTORS[:2], LABELS[:2], VECTORS, LABELS, self_index=positions)
