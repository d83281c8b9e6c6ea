"""Potentials as functions of the distance."""

import pytest
import torch

from dml.losses.potential_functions import DecayingPotential


def force_on_pair(potential: DecayingPotential, r: float, same: bool) -> float:
    """The length of dψ/dz of one of two charges: 2 r |dψ/dr²|."""
    r2 = torch.tensor([r * r], dtype=torch.float64)
    slope = (potential.attraction if same else potential.repulsion)(r2)[1]
    return 2 * r * slope.abs().item()


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0, 6.0])
def test_forces_decay_as_a_power_and_end_at_delta(alpha: float) -> None:
    potential = DecayingPotential(alpha, 0.2, 0.2, 0.01)
    assert force_on_pair(potential, 0.19, same=True) == 0
    assert force_on_pair(potential, 0.21, same=False) == 0
    assert force_on_pair(potential, 0.009, same=False) == 0
    for r, same in ((0.3, True), (0.05, False)):
        ratio = force_on_pair(potential, r, same) / force_on_pair(potential, 2 * r, same)
        assert ratio == pytest.approx(2 ** (alpha + 1), rel=1e-12)
