"""Products keep float32's precision, whatever the program set for its training."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from dml.retrieval import matmul, nearest_neighbors
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


def test_searches_at_once_leave_the_precision_alone(generator):
    embeddings = torch.randn(600, 16, generator=generator)
    begun, done = threading.Event(), threading.Event()

    def long_search():
        with matmul.full_float32(torch.device("cpu")):
            begun.set()
            done.wait(60)
            assert torch.get_float32_matmul_precision() == "highest"

    torch.set_float32_matmul_precision("medium")
    try:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(long_search)
            begun.wait(60)
            nearest_neighbors(embeddings, k=3)
            assert torch.get_float32_matmul_precision() == "highest"  # the other still needs it
            done.set()
            other.result()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        done.set()
        torch.set_float32_matmul_precision("highest")


def test_both_products_agree(generator):
    a, b = torch.randn(16, 10, generator=generator), torch.randn(32, 10, generator=generator)
    out = torch.empty(16, 32)
    torch.testing.assert_close(matmul._default(a, b, out), a @ b.T)
    if torch.backends.mkldnn.is_available():
        torch.testing.assert_close(matmul._one_dnn(a, b, out), a @ b.T)
