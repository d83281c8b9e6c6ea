"""Training steps on the pretended device: numbers of the CPU, and a ceiling on the waits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dml.losses import C2Loss
from dml.methods.chance_constrained import ChanceConstrained
from dml.training.process_group import SINGLE_PROCESS
from dml.training.step import TrainingStep
from tests.methods.tiny_training import Pool, TinyEmbedder, images_of
from tests.pretended_cuda.waits import Wait, count_waits, listed
from tests.training import distributed_steps
from tests.training.distributed_steps import CASES, LOSSES, config_of, relative, trained

# With losses of ours. A method that calls the loss of another package adds the waits of that loss.
CEILINGS = {"plain": 1, "metrix": 4, "xbm": 2, "imix": 2, "mochi": 2, "proxy_synthesis": 2}
CALLS = {"xbm": 2}  # of the loss: for the batch, and for the memory


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
    target: str = config_of(loss).loss["_target_"]
    return target.startswith("dml.")


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_the_cpu_and_waits_seldom(case, steps):
    expected = trained(case, SINGLE_PROCESS)
    steps.clear()
    found = trained(case, SINGLE_PROCESS, "cuda")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert relative(found[name].cpu(), value) < (1e-3 if case == "bf16" else 1e-5), name

    most = max(steps, key=Counter.total)
    loss, method, _ = distributed_steps.METHODS.get(case, (case, "plain", {}))
    if loss not in LOSSES:  # a network, with a loss of ours
        assert most.total() <= CEILINGS["plain"], listed(most)
    elif is_ours(loss):
        ceiling = 2 if loss in ("pfml", "cpml") else CEILINGS[method]
        assert most.total() <= ceiling, listed(most)
    elif method != "plain":
        steps.clear()
        trained(loss, SINGLE_PROCESS, "cuda")
        own = max(waits.total() for waits in steps)
        assert most.total() <= CEILINGS[method] + CALLS.get(method, 1) * own, listed(most)


def test_steps_of_ccp_wait_twice():
    """Starts of stages apart: they embed the pool, and measure its radii."""
    labels = torch.arange(4).repeat_interleave(5)
    images = images_of(labels)
    losses: dict[str, list[Tensor]] = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        embedder = TinyEmbedder().to(device)
        method = ChanceConstrained(C2Loss(), None, 4, 3, proxies_per_class=2, pool_size=4)
        method.to(device).train().attach(_pool_on(device, images, labels))
        parameters = [*embedder.parameters(), *method.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.05)
        batch = images.to(device), labels.to(device)
        losses[device] = []
        for number in range(9):
            starts = number % 3 == 0
            with count_waits() as waits:
                losses[device].append(_ccp_step(embedder, method, optimizer, *batch))
            assert starts or waits.total() <= 2, listed(waits)
            if number % 3 == 2:
                for _ in range(4):  # no improvement: the stage ends
                    method.on_evaluation(embedder, 0.0)
        assert method._stage == 2
    cuda, cpu = (torch.stack(losses[device]).cpu() for device in ("cuda", "cpu"))
    torch.testing.assert_close(cuda, cpu, rtol=1e-5, atol=0)


def _pool_on(device: str, images: Tensor, labels: Tensor) -> Any:
    pool = Pool(images, labels)
    return lambda *which: [(some.to(device), own.to(device)) for some, own in pool(*which)]


def _ccp_step(
    embedder: nn.Module,
    method: ChanceConstrained,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
) -> Tensor:
    loss, _ = method(embedder, images, labels)
    optimizer.zero_grad()
    loss.backward()
    method.after_backward(embedder)
    optimizer.step()
    return loss.detach()
