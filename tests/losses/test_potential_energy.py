"""Energies and forces computed in tiles, with and without screening."""

import math

import pytest
import torch
from torch import Tensor

from dml.losses import distances as pair_distances
from dml.losses import potential_energy
from dml.losses.potential_energy import mean_energy
from dml.losses.potential_functions import DecayingPotential, GrowingPotential
from tests.losses.potential_references import cpml_energy, pfml_energy


def crowd(size: int, near: float) -> tuple[Tensor, Tensor]:
    """Random charges of 40 dimensions, and a cluster with distances of about `near`."""
    torch.manual_seed(0)
    x = torch.randn(size, 40, dtype=torch.float64)
    x[: size // 2] = x[0] + near * x[0].norm() / math.sqrt(80) * x[: size // 2]
    return x, torch.arange(size) % 17


POTENTIALS = [
    DecayingPotential(4.0, 0.2, 0.2, 0.01),
    DecayingPotential(6.0, 0.1, 0.3, 0.001),
    GrowingPotential(0.2, "hinge"),
]


@pytest.mark.parametrize("potential", POTENTIALS)
@pytest.mark.parametrize("near", [0.002, 0.1, 0.29, 0.5])
@pytest.mark.parametrize("few", [0.0, 0.1, 0.3, 1.0])
def test_screen_and_single_pairs_change_nothing(potential, near, few, monkeypatch) -> None:
    x, labels = crowd(120, near)
    x.requires_grad_()
    expected = mean_energy(x, labels, potential)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(potential_energy, "CPU_TILE", (16, 24))
    monkeypatch.setattr(potential_energy, "FEW", few)
    actual = mean_energy(x, labels, potential)
    (actual_gradient,) = torch.autograd.grad(actual, x)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
    scale = gradient.abs().max()
    torch.testing.assert_close(actual_gradient / scale, gradient / scale, rtol=0, atol=1e-8)


def energy_and_forces(x: Tensor, labels: Tensor, potential) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    energy = mean_energy(x, labels, potential)
    return energy.detach(), torch.autograd.grad(energy, x)[0]


@pytest.mark.parametrize("potential", POTENTIALS)
def test_the_last_tile_may_have_any_number_of_charges(potential, monkeypatch) -> None:
    x, _ = crowd(100, 0.1)  # all of the first half are near each other
    batches = [(x[:size], torch.arange(size) ** 2 % 11) for size in (31, 34, 37, 41)]
    expected = [energy_and_forces(*batch, potential) for batch in batches]
    monkeypatch.setattr(potential_energy, "CPU_TILE", (4, 12))
    for batch, (energy, forces) in zip(batches, expected, strict=True):
        actual, actual_forces = energy_and_forces(*batch, potential)
        torch.testing.assert_close(actual, energy, rtol=1e-10, atol=0)
        scale = forces.abs().max()
        torch.testing.assert_close(actual_forces / scale, forces / scale, rtol=0, atol=1e-8)


@pytest.mark.parametrize("near", [1e-3, 3e-3, 0.02])
def test_float32_is_accurate_near_zero(near: float) -> None:
    x, labels = crowd(60, near)
    x = x.float()
    potential = DecayingPotential(6.0, 0.1, 0.1, 1e-3)
    x_ref = x.double().requires_grad_()
    expected = 0.1**6 / 60 * pfml_energy(x_ref, labels, 6.0, 0.1, 0.1, 1e-3)
    expected.backward()
    x.requires_grad_()
    value = mean_energy(x, labels, potential)
    value.backward()
    assert x.grad is not None
    assert x_ref.grad is not None
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=0)
    scale = x_ref.grad.abs().max()
    torch.testing.assert_close(x.grad.double() / scale, x_ref.grad / scale, rtol=0, atol=1e-4)


def cpml_reference(x: Tensor, labels: Tensor) -> Tensor:
    return cpml_energy(x, labels, 0.2, "hinge") / len(x)


def pfml_reference(x: Tensor, labels: Tensor) -> Tensor:
    return 0.2**4 / len(x) * pfml_energy(x, labels, 4.0, 0.2, 0.2, 1e-7)


@pytest.mark.parametrize("few", [0.0, 1.0], ids=["whole tiles", "single pairs"])
@pytest.mark.parametrize("near", [1e-3, 1e-4, 1e-5, 1e-6, 3e-7])
@pytest.mark.parametrize(
    ("potential", "reference"),
    [
        (GrowingPotential(0.2, "hinge"), cpml_reference),
        (DecayingPotential(4.0, 0.2, 0.2, 1e-7), pfml_reference),
    ],
    ids=["cpml", "pfml"],
)
def test_float64_is_exact_where_charges_nearly_touch(potential, reference, near, few, monkeypatch):
    """The references, by difference vectors, keep ten digits here; 2 − 2s keeps three."""
    monkeypatch.setattr(pair_distances, "FEW", few)
    monkeypatch.setattr(potential_energy, "CPU_TILE", (16, 24))
    x, labels = crowd(60, near)
    x.requires_grad_()
    expected = reference(x, labels)
    (expected_gradient,) = torch.autograd.grad(expected, x)
    value = mean_energy(x, labels, potential)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=0)
    scale = expected_gradient.abs().max()
    torch.testing.assert_close(gradient / scale, expected_gradient / scale, rtol=0, atol=1e-8)
