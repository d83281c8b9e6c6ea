"""Potentials of many charges on the pretended device: tiles cut anywhere, one wait for all."""

from __future__ import annotations

import pytest
import torch

from dml.losses import potential_energy
from dml.losses.potential_energy import mean_energy
from dml.losses.potential_functions import DecayingPotential, GrowingPotential, Potential
from tests.losses.test_potential_energy import crowd
from tests.pretended_cuda.waits import count_waits, listed


@pytest.mark.parametrize("classes", [3, 60])  # more and fewer than fill a block
@pytest.mark.parametrize("near", [1e-5, 0.1])
@pytest.mark.parametrize(
    "potential", [DecayingPotential(4.0, 0.2, 0.2, 0.01), GrowingPotential(0.2, "square")]
)
def test_tiles_that_split_classes_give_the_energy_and_the_forces_of_the_cpu(
    potential: Potential, near: float, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = crowd(120, near)
    labels = torch.arange(120) % classes
    monkeypatch.setattr(potential_energy, "GPU_TILE", (16, 24))
    found = []
    for placed in (x, x.cuda()):
        placed = placed.detach().requires_grad_()
        with count_waits() as waits:
            value = mean_energy(placed, labels.to(placed.device), potential)
        value.backward()
        found += [value.detach().cpu(), placed.grad.cpu() / placed.grad.cpu().abs().max()]
    assert waits.total() == 1 + 1, listed(waits)  # one for the labels that the test copies
    torch.testing.assert_close(found[2], found[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[3], found[1], rtol=0, atol=1e-8)
