import numpy as np
import pytest
import torch

from dml.runs.embeddings import concatenate_models, save_embeddings
from dml.runs.evaluator import Split, SplitEmbeddings
from tests.runs.jobs.test_job_list import index_of


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
