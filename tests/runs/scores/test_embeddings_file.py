import numpy as np
import pytest

from dml.core.errors import UserError


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.eye(2), "labels": np.arange(2)}, "no array 'embeddings', only features"),
        ({"embeddings": np.eye(2), "labels": np.arange(3)}, "must hold 2 labels"),
        ({"embeddings": np.arange(4), "labels": np.arange(4)}, "must be a matrix"),
        ({"embeddings": np.eye(2), "labels": np.array(["a", "b"])}, "must hold integers"),
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
            "'gallery_labels', but no 'gallery_embeddings'",
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
            "queries of 2 dimensions and a gallery of 3",
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
