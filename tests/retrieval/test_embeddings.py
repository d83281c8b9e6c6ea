import pytest
import torch
from torch.nn import functional as F

from dml.retrieval.embeddings import SplitEmbeddings, concatenate_models, save_embeddings


def clip(x):
    return x / x.norm(dim=1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("normalize", [F.normalize, clip])
def test_joined_embeddings_are_normalized_before_and_after(tmp_path, normalize):
    labels = torch.arange(8) % 4, torch.arange(16) % 4
    files = [tmp_path / f"{number}.npz" for number in range(3)]
    models = [[s * torch.randn(len(part), 5) for part in labels] for s in (0.1, 1, 10)]
    for file, (query, gallery) in zip(files, models, strict=True):
        made = SplitEmbeddings(query, labels[0], gallery, labels[1])
        save_embeddings(file, made, [part.tolist() for part in labels])

    found = concatenate_models(files, normalize, torch.device("cpu"))
    for got, parts in zip((found.query, found.gallery), zip(*models, strict=True), strict=True):
        torch.testing.assert_close(
            got, normalize(torch.cat([normalize(part) for part in parts], dim=1))
        )
    assert torch.equal(found.query_labels, labels[0])
