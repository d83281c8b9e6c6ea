"""PFML and CPML equal their equations."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import ContrastivePotentialLoss, PotentialFieldLoss, potential_energy
from dml.methods.plain import Plain
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches
from tests.losses.potential_references import cpml_energy, pfml_energy

FLOATS = [torch.float64, torch.float32]


def pfml_reference(x, labels, scale, alpha, delta, delta_repulsion) -> Tensor:
    energy = pfml_energy(x, labels, alpha, delta, delta_repulsion or delta, 0.01)
    return energy if scale == "energy" else delta**alpha * energy / len(x)


def cpml_reference(x, labels, scale, delta, repulsion) -> Tensor:
    energy = cpml_energy(x, labels, delta, repulsion)
    return energy if scale == "energy" else energy / len(x)


SCALES = {"scale": ["energy", "normalized"]}
RADII = {"delta": [0.1, 0.2, 0.3], "delta_repulsion": [None, 0.15, 0.6]}
# loss, its equation, and the values of the hyperparameters of both
EQUATIONS = {
    "pfml": (PotentialFieldLoss, pfml_reference, {"alpha": [0.0, 0.5, 4.0, 6.0], **RADII}),
    "cpml": (
        ContrastivePotentialLoss,
        cpml_reference,
        {"delta": [0.1, 0.3], "repulsion": ["hinge", "square"]},
    ),
}


def squeeze_together(loss: torch.nn.Module, batch: Batch, spread: float) -> Tensor:
    """Draws all charges into a cap of the sphere, so that most pairs interact."""
    torch.manual_seed(batch.seed)
    center = F.normalize(torch.randn(batch.embedding_size), dim=0)
    if loss.proxies.numel():
        noise = spread * torch.randn_like(loss.proxies)
        loss.proxies.data = (center + noise) * torch.rand(len(loss.proxies), 1).add(0.5)
    zero = batch.x.norm(dim=1, keepdim=True) == 0
    unit = F.normalize(batch.x, dim=1)
    return torch.where(zero, 0.0, center.double() + spread * unit)


@pytest.fixture(params=["one tile", "many tiles"])
def tile_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many tiles":
        monkeypatch.setattr(potential_energy, "CPU_TILE", (3, 4))


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EQUATIONS)
@settings(max_examples=40, deadline=None)
@given(
    batch=batches(),
    per_class=st.integers(0, 3),
    spread=st.sampled_from([0.03, 0.2, 2.0]),
    data=st.data(),
)
def test_equals_the_equation(name, dtype, batch: Batch, per_class, spread, data) -> None:
    make, equation, values = EQUATIONS[name]
    values = {**values, **SCALES}
    drawn = {option: data.draw(st.sampled_from(some)) for option, some in values.items()}
    loss = make(batch.num_classes, batch.embedding_size, per_class, **drawn)
    x = squeeze_together(loss, batch, spread)

    def reference(x: Tensor, y: Tensor, *proxies: Tensor) -> Tensor:
        p = proxies[0] if proxies else x[:0]
        labels = torch.arange(batch.num_classes).repeat_interleave(per_class)
        return equation(torch.cat([x, p]), torch.cat([y, labels]), **drawn)

    assert_matches(loss, reference, x, batch.y, dtype)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("min_distance", [0.05, 0.3])  # below and above delta
def test_charges_nearer_than_the_minimum_attract_as_at_the_minimum(alpha, min_distance) -> None:
    torch.manual_seed(0)
    x = F.normalize(torch.ones(30, 4, dtype=torch.float64) + 0.2 * torch.randn(30, 4))
    x.requires_grad_()
    labels = torch.zeros(30, dtype=torch.long)
    loss = PotentialFieldLoss(1, 4, 0, alpha, delta=0.1, min_distance=min_distance)
    expected = pfml_energy(x, labels, alpha, 0.1, 0.1, min_distance)
    torch.testing.assert_close(loss(x, labels), expected)
    (actual_gradient,) = torch.autograd.grad(loss(x, labels), x)
    (expected_gradient,) = torch.autograd.grad(expected, x)
    torch.testing.assert_close(actual_gradient, expected_gradient)


SPACE = [(alpha, delta) for alpha in (0.0, 1.0, 2.0, 4.0, 6.0) for delta in (0.05, 0.2, 0.35)]


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [
        *(({"alpha": alpha, "delta": delta}, 1000, math.inf) for alpha, delta in SPACE),
        ({"scale": "normalized"}, 0, 0.01),  # why it is not the default
    ],
)
def test_forces_on_proxies_exceed_their_weight_decay(options, least, most) -> None:
    torch.manual_seed(0)
    loss = PotentialFieldLoss(100, 512, 15, **options)
    loss(torch.randn(100, 512), torch.randint(100, (100,))).backward()
    assert least < loss.proxies.grad.norm() / (5e-4 * loss.proxies.detach()).norm() < most


@pytest.mark.parametrize(
    ("alpha", "delta", "classes", "per_class", "size"),
    [
        *((*point, 100, 15, 512) for point in SPACE),
        pytest.param(6.0, 0.05, 11318, 2, 32, marks=pytest.mark.soak),
    ],
)
def test_all_charges_in_one_place_leave_training_finite(alpha, delta, classes, per_class, size):
    """At the distance of the largest forces, whose norm exceeds float32."""
    torch.manual_seed(0)
    loss = PotentialFieldLoss(classes, size, per_class, alpha, delta)
    center = F.normalize(torch.randn(size), dim=0)
    spread = 1.1 * loss.min_distance / math.sqrt(2 * size)
    loss.proxies.data = center + spread * torch.randn_like(loss.proxies)
    x = (center + spread * torch.randn(100, size)).requires_grad_()
    value = loss(x, torch.randint(classes, (100,)))
    value.backward()
    assert value.isfinite()
    assert loss.proxies.grad.isfinite().all()
    assert x.grad.isfinite().all()
    assert torch.linalg.vector_norm(loss.proxies.grad, dtype=torch.float64).isfinite()
    if classes == 11318:
        assert not loss.proxies.grad.norm().isfinite()  # clipping must not receive this
    for optimizer in (torch.optim.Adam, torch.optim.RMSprop):
        one = optimizer([loss.proxies], lr=1e-2)
        one.step()
        assert all(value.isfinite().all() for value in one.state[loss.proxies].values())


def test_logs_are_in_units_that_do_not_depend_on_alpha_delta_and_charges() -> None:
    torch.manual_seed(0)
    energy = PotentialFieldLoss(7, 5, 2, delta=0.6)
    normalized = PotentialFieldLoss(7, 5, 2, delta=0.6, scale="normalized")
    normalized.load_state_dict(energy.state_dict())
    x, y = torch.randn(9, 5), torch.tensor([0, 1, 1, 1, 6, 6, 2, 0, 3])
    values = []
    for loss in (energy, normalized):
        value, logs = Plain(loss)(torch.nn.Identity(), x, y)
        assert value == loss(x, y)
        values.append(logs["loss"])
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(energy(x, y), values[1] * (9 + 14) / 0.6**4)
