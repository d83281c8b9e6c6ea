"""All our losses under torch.compile and on CUDA, and beside the forms the benchmark times."""

import pytest
import torch

from dml.losses import MeanFieldClassWiseMultiSimilarityLoss, PotentialFieldLoss
from scripts.benchmarks import _dense_losses
from tests.losses.all_losses import LOSSES, batch, value_and_gradients

# sums over tiles leave the graph on purpose; triplets of a batch among itself because torch does
# not trace a function that gets the same tensor twice
LEAVE_THE_GRAPH = {"mfcwms with regularizer", "pfml", "cpml", "triplet"}


@pytest.mark.parametrize(
    "name",
    [n if n == "mfcwms" else pytest.param(n, marks=pytest.mark.soak) for n in LOSSES],
)
def test_compiled_equals_eager(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    loss = LOSSES[name]()
    x, y = batch()
    fullgraph = name not in LEAVE_THE_GRAPH
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=fullgraph)
    actual = value_and_gradients(compiled, loss, x, y)
    torch.testing.assert_close(actual, value_and_gradients(loss, loss, x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_cuda_equals_cpu(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name]()
    x, y = batch()
    x = x.to(dtype)
    expected = value_and_gradients(loss, loss, x, y)
    loss = loss.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        actual = [t.cpu() for t in value_and_gradients(loss, loss, x.cuda(), y.cuda())]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2  # the gradient in x comes in bfloat16
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    with pytest.raises(ValueError, match=r"labels|embeddings"):
        loss(x.cuda() * torch.nan, y.cuda() - 1)


def test_mfcwms_equals_its_dense_form() -> None:
    torch.manual_seed(0)
    loss = MeanFieldClassWiseMultiSimilarityLoss(7, 5, 3, 7, 0.3).double()
    x, y = batch()
    dense = _dense_losses.mfcwms(x.double(), y, loss.mean_fields, 3, 7, 0.3)
    torch.testing.assert_close(loss(x.double(), y), dense, rtol=1e-10, atol=0)


def test_pfml_equals_its_dense_form() -> None:
    torch.manual_seed(0)
    loss = PotentialFieldLoss(7, 5, 2, delta=0.6).double()
    x, y = batch()
    dense = _dense_losses.pfml(x.double(), y, loss.proxies, 2, 4.0, 0.6)
    torch.testing.assert_close(loss(x.double(), y), dense, rtol=1e-10, atol=0)
