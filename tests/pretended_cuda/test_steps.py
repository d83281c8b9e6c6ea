"""Training steps on the pretended device: numbers of the CPU, and a ceiling on the waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from dml.losses import MeanFieldContrastiveLoss
from dml.losses.arguments import READ_EVERY
from dml.training.process_group import SINGLE_PROCESS
from dml.training.step import TrainingStep
from tests.methods.tiny_training import ccp_steps
from tests.pretended_cuda.waits import Wait, count_waits, listed
from tests.training import distributed_steps
from tests.training.distributed_steps import CASES, LOSSES, config_of, relative, trained

# With losses of ours. A method that calls the loss of another package adds the waits of that loss.
CEILINGS = {"plain": 0, "metrix": 2, "xbm": 0, "imix": 0, "mochi": 0, "proxy_synthesis": 2}
READING = 1  # of the checks of values, at most at one of these few steps
FURTHER = {"cpml": 1, "n_pair": 1, "metrix of all": 1}  # n_pair: the number of its pairs
CALLS = {"xbm": 2}  # of the loss: for the batch, and for the memory


@pytest.fixture
def precision(case: str) -> Iterator[float]:
    """The allowed difference: float64, since losses magnify the rounding of float32."""
    torch.set_default_dtype(torch.float32 if case == "bf16" else torch.float64)
    yield 1e-3 if case == "bf16" else 1e-9  # softplus of PML: 2e-10
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Counter[Wait]]:
    """The waits of each training step so far."""
    found: list[Counter[Wait]] = []
    step = TrainingStep.__call__

    def count_step(self: TrainingStep, *arguments: Any) -> dict[str, Tensor]:
        with count_waits() as waits:
            values = step(self, *arguments)
        found.append(waits)
        return values

    monkeypatch.setattr(TrainingStep, "__call__", count_step)
    return found


def is_ours(loss: str) -> bool:
    """Returns whether loss and miner are of this package."""
    options = config_of(loss).loss
    return options["_target_"].startswith("dml.") and "miner" not in options


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_the_cpu_and_waits_seldom(case, steps, precision):
    expected = trained(case, SINGLE_PROCESS)
    steps.clear()
    found = trained(case, SINGLE_PROCESS, "cuda")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert relative(found[name].cpu(), value) < precision, name

    *_, second, most = sorted(steps, key=Counter.total)
    loss, method, _ = distributed_steps.METHODS.get(case, (case, "plain", {}))
    if loss not in LOSSES or is_ours(loss):  # if not in LOSSES, a network with a loss of ours
        ceiling = CEILINGS[method] + FURTHER.get(case, 0)
        assert second.total() <= ceiling, listed(second)
        assert most.total() <= ceiling + READING, listed(most)
    elif method != "plain":
        steps.clear()
        trained(loss, SINGLE_PROCESS, "cuda")
        own = max(waits.total() for waits in steps)
        ceiling = CEILINGS[method] + CALLS.get(method, 1) * own + READING
        assert most.total() <= ceiling, listed(most)


@pytest.mark.parametrize(("wrong", "message"), [(-1, "labels"), (7, "labels"), (None, "finite")])
def test_wrong_values_are_reported_within_fifty_batches(wrong, message):
    loss = MeanFieldContrastiveLoss(num_classes=7, embedding_size=4).to("cuda")
    embeddings, labels = torch.rand(3, 4).to("cuda"), torch.tensor([0, 1, 2]).to("cuda")
    loss(embeddings, labels)
    if wrong is None:
        embeddings = embeddings * torch.nan
    else:
        labels = labels + (wrong - labels) * (labels == 1)
    with pytest.raises(ValueError, match=message):
        [loss(embeddings, labels) for _ in range(READ_EVERY)]


def test_wrong_values_of_a_training_that_failed_are_not_those_of_the_next():
    """A search goes on with the next trial in the same process."""
    size = {"num_classes": 7, "embedding_size": 4}
    embeddings, labels = torch.rand(3, 4).to("cuda"), torch.tensor([0, 1, 2]).to("cuda")
    failed, healthy = (MeanFieldContrastiveLoss(**size).to("cuda") for _ in range(2))
    failed(embeddings, labels)
    failed(embeddings * torch.nan, labels)  # not read yet
    for _ in range(READ_EVERY + 1):
        healthy(embeddings, labels)
    with pytest.raises(ValueError, match="finite"):
        [failed(embeddings, labels) for _ in range(READ_EVERY)]


def test_steps_of_ccp_wait_twice():
    """Starts of stages apart: they embed the pool, and measure its radii."""
    losses = {"cpu": [step() for step in ccp_steps("cpu")], "cuda": []}
    for number, step in enumerate(ccp_steps("cuda")):
        with count_waits() as waits:
            losses["cuda"].append(step())
        assert number % 3 == 0 or waits.total() <= 2, listed(waits)
    cuda, cpu = (torch.stack(losses[device]).cpu() for device in ("cuda", "cpu"))
    torch.testing.assert_close(cuda, cpu, rtol=1e-5, atol=0)
