"""Mixed embeddings of batches."""

import pytest
import torch
from pytorch_metric_learning import losses as pml

from dml.methods.metrix import TYPES, Metrix
from dml.methods.metrix.analysis import embed_mixes
from dml.retrieval.geometry import utilization
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def batches(count):
    torch.manual_seed(0)
    return [(torch.randn(7, 3, 6, 6, dtype=torch.float64), LABELS) for _ in range(count)]


@pytest.mark.parametrize("kind", TYPES)
def test_mixed_embeddings_can_only_lower_the_utilization(kind):
    embedder = tiny_embedder()
    (images, _), (others, _) = batches(2)
    queries, training = embedder(others).detach(), embedder(images).detach()
    mixed = list(embed_mixes(Metrix(pml.MultiSimilarityLoss(), types=[kind]), embedder,
                                  [(images, LABELS)]))  # fmt: skip
    assert torch.allclose(mixed[0].norm(dim=1), torch.ones(len(mixed[0]), dtype=torch.float64))
    assert utilization(queries, [training, *mixed]) < utilization(queries, training)
    assert utilization(queries, queries) < 1e-12
