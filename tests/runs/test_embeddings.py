import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.runs.embeddings import SplitEmbeddings, concatenate_models, save_embeddings
from dml.runs.protocol import Split
from tests.runs.test_protocol import index_of


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2), "labels": np.arange(2)}, "no array 'embeddings', only features"),
        ({"embeddings": np.eye(2), "labels": np.arange(3)}, "must hold 2 integers"),
        ({"embeddings": np.arange(4), "labels": np.arange(4)}, "must be a matrix"),
        ({"embeddings": np.eye(2), "labels": np.array(["a", "b"])}, "must hold 2 integers"),
        (
            {"embeddings": np.array([{}, {}]), "labels": np.arange(2)},
            "'embeddings' of .* holds Python objects",
        ),
        (
            {
                "embeddings": np.eye(2),
                "labels": np.zeros(2, int),
                "gallery_labels": np.zeros(2, int),
            },
            "no array 'gallery_embeddings'",
        ),
        ({"embeddings": np.eye(2) * np.nan, "labels": np.zeros(2, int)}, "NaN"),
        ({"embeddings": np.eye(2), "labels": np.arange(2)}, "no query has a relevant item"),
        (
            {
                "embeddings": np.eye(2),
                "labels": np.zeros(2, int),
                "gallery_embeddings": np.eye(3),
                "gallery_labels": np.zeros(3, int),
            },
            "differ in their dimensions",
        ),
    ],
)
def test_wrong_arrays(evaluated, tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message):
        evaluated(f"embeddings={tmp_path}/x.npz")


def test_a_single_array_has_no_labels(evaluated, tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(UserError, match=r"holds one array and so no labels; numpy\.savez"):
        evaluated(f"embeddings={tmp_path}/x.npy")


@pytest.mark.parametrize("normalize", ["l2", "none", "clipped"])
def test_joined_embeddings_are_normalized_before_and_after(tmp_path, normalize):
    index = index_of(8, query=True)
    split = Split(index.subset("query"), index.subset("gallery"))
    rng = np.random.default_rng(0)
    models, files = [], []
    for number in range(3):
        parts = [rng.normal(size=(len(view), 5)) * 10 ** (number - 1) for view in split.subsets]
        labels = [torch.from_numpy(view.index.labels[view.rows]) for view in split.subsets]
        first, second = (torch.from_numpy(part).float() for part in parts)
        files.append(tmp_path / f"{number}.npz")
        save_embeddings(
            files[-1], SplitEmbeddings(first, labels[0], second, labels[1]), split, "float32"
        )
        models.append(parts)

    def unit(x):
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return x / (np.maximum(length, 1) if normalize == "clipped" else length)

    found = concatenate_models(files, normalize, torch.device("cpu"))
    for place, got in enumerate((found.query, found.gallery)):
        expected = unit(np.concatenate([unit(model[place]) for model in models], axis=1))
        assert np.allclose(got.numpy(), expected, atol=1e-6)
    assert found.query_labels.tolist() == split.query.index.labels[split.query.rows].tolist()
