"""Products keep float32's precision, whatever the program set for its training."""

import torch

from dml.retrieval import nearest_neighbors
from tests.retrieval import reference


def test_products_are_true_float32_whatever_training_uses(generator):
    embeddings = torch.nn.functional.normalize(torch.randn(400, 32, generator=generator))
    expected = reference.ranking(embeddings)[1][:, :20]
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(nearest_neighbors(embeddings, k=20).indices, expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_pytorchs_newer_precision_settings(generator):
    embeddings = torch.randn(400, 32, generator=generator)
    expected = reference.ranking(embeddings)[1][:, :20]
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [backend.fp32_precision for backend in backends]
    try:
        backends[0].fp32_precision, backends[1].fp32_precision = "tf32", "bf16"
        assert torch.equal(nearest_neighbors(embeddings, k=20).indices, expected)
        assert [backend.fp32_precision for backend in backends] == ["tf32", "bf16"]
    finally:
        for backend, word in zip(backends, before, strict=True):
            backend.fp32_precision = word
    assert torch.get_float32_matmul_precision() == "highest"
