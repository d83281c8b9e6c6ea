import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import ContrastivePotentialLoss, PotentialFieldLoss, charges
from dml.losses import distances as pair_distances
from dml.losses.charges import mean_energy
from dml.losses.potentials import DecayingPotential, GrowingPotential, Potential
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches

FLOATS = [torch.float64, torch.float32]
SETTINGS = settings(max_examples=60, deadline=None)


def distances(x: Tensor) -> Tensor:
    z = F.normalize(x, dim=1)
    squared = (z[:, None] - z).square().sum(dim=2)
    positive = squared > 0
    return torch.where(positive, squared, 1.0).sqrt() * positive


def sum_of_pairs(attraction: Tensor, repulsion: Tensor, labels: Tensor) -> Tensor:
    pairs = torch.where(labels[:, None] == labels, attraction, repulsion)
    return pairs.masked_fill(torch.eye(len(labels), dtype=torch.bool), 0).sum() / len(labels)


def pfml_energy(
    x: Tensor, labels: Tensor, alpha: float, delta: float, delta_rep: float, min_distance: float
) -> Tensor:
    r = distances(x).clamp_min(min_distance)
    if alpha == 0:
        attraction = (r.clamp_min(delta) / delta).log()
        repulsion = -(r.clamp_max(delta_rep) / delta).log()
    else:
        attraction = -((delta / r) ** alpha).clamp_max(1)
        repulsion = (delta / r.clamp_max(delta_rep)) ** alpha
    return sum_of_pairs(attraction, repulsion, labels)


def cpml_energy(x: Tensor, labels: Tensor, delta: float, form: str) -> Tensor:
    r = distances(x)
    hinge = (delta - r).clamp_min(0) ** 2
    repulsion = hinge if form == "hinge" else -(r.clamp_max(delta) ** 2)
    return sum_of_pairs(r.clamp_min(delta) ** 2, repulsion, labels)


def with_proxies(x: Tensor, y: Tensor, proxies: Tensor, per_class: int) -> tuple[Tensor, Tensor]:
    classes = len(proxies) // max(per_class, 1)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return torch.cat([x, proxies]), torch.cat([y, labels])


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
        monkeypatch.setattr(charges, "CPU_TILE", (3, 4))


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(
    batch=batches(),
    per_class=st.integers(0, 3),
    alpha=st.sampled_from([0.0, 0.5, 4.0, 6.0]),
    delta=st.sampled_from([0.1, 0.2, 0.3]),
    delta_rep=st.sampled_from([None, 0.15, 0.6]),
    spread=st.sampled_from([0.03, 0.2, 2.0]),
)
def test_pfml_equals_equation(
    dtype: torch.dtype,
    batch: Batch,
    per_class: int,
    alpha: float,
    delta: float,
    delta_rep: float | None,
    spread: float,
) -> None:
    loss = PotentialFieldLoss(
        batch.num_classes, batch.embedding_size, per_class, alpha, delta, delta_rep
    )
    x = squeeze_together(loss, batch, spread)

    def reference(x: Tensor, y: Tensor, *proxies: Tensor) -> Tensor:
        p = proxies[0] if proxies else x[:0]
        x, labels = with_proxies(x, y, p, per_class)
        return pfml_energy(x, labels, alpha, delta, delta_rep or delta, 0.01)

    assert_matches(loss, reference, x, batch.y, dtype)


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(
    batch=batches(),
    per_class=st.integers(0, 3),
    delta=st.sampled_from([0.1, 0.3]),
    form=st.sampled_from(["hinge", "square"]),
    spread=st.sampled_from([0.03, 0.2, 2.0]),
)
def test_cpml_equals_equation(
    dtype: torch.dtype, batch: Batch, per_class: int, delta: float, form: str, spread: float
) -> None:
    loss = ContrastivePotentialLoss(batch.num_classes, batch.embedding_size, per_class, delta, form)
    x = squeeze_together(loss, batch, spread)

    def reference(x: Tensor, y: Tensor, *proxies: Tensor) -> Tensor:
        p = proxies[0] if proxies else x[:0]
        x, labels = with_proxies(x, y, p, per_class)
        return cpml_energy(x, labels, delta, form)

    assert_matches(loss, reference, x, batch.y, dtype)


def crowd(size: int, near: float) -> tuple[Tensor, Tensor]:
    """Charges of 40 dimensions: random ones, and a cluster in which `near` is the distance."""
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
@pytest.mark.parametrize("near", [0.002, 0.1, 0.5])
@pytest.mark.parametrize("few", [0.0, 1.0])
def test_screen_and_single_pairs_change_nothing(
    potential: DecayingPotential, near: float, few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, labels = crowd(120, near)
    x.requires_grad_()
    expected = mean_energy(x, labels, potential)
    (gradient,) = torch.autograd.grad(expected, x)
    monkeypatch.setattr(charges, "CPU_TILE", (16, 24))
    monkeypatch.setattr(charges, "FEW", few)
    actual = mean_energy(x, labels, potential)
    (actual_gradient,) = torch.autograd.grad(actual, x)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)
    scale = gradient.abs().max()
    torch.testing.assert_close(actual_gradient / scale, gradient / scale, rtol=0, atol=1e-8)


def test_screening_before_waiting_as_on_a_gpu_changes_nothing() -> None:
    x, labels = crowd(120, 0.1)
    results = []
    for on_gpu in (False, True):
        state = charges._Charges(x, labels, POTENTIALS[0], True)
        state.rows, state.columns, state.on_gpu = 16, 24, on_gpu
        state.add_all()
        results.append((state.energy, state.gradient()))
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("near", [1e-3, 3e-3, 0.02])
def test_float32_is_accurate_near_zero(near: float) -> None:
    x, labels = crowd(60, near)
    x = x.float()
    potential = DecayingPotential(6.0, 0.1, 0.1, 1e-3)
    x_ref = x.double().requires_grad_()
    expected = pfml_energy(x_ref, labels, 6.0, 0.1, 0.1, 1e-3)
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
    return cpml_energy(x, labels, 0.2, "hinge")


def pfml_reference(x: Tensor, labels: Tensor) -> Tensor:
    return pfml_energy(x, labels, 4.0, 0.2, 0.2, 1e-7)


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
def test_float64_is_exact_where_charges_nearly_touch(
    potential: Potential,
    reference: Callable[[Tensor, Tensor], Tensor],
    near: float,
    few: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The references, by difference vectors, keep ten digits here; 2 − 2s keeps three."""
    monkeypatch.setattr(pair_distances, "FEW", few)
    monkeypatch.setattr(charges, "CPU_TILE", (16, 24))
    x, labels = crowd(60, near)
    x.requires_grad_()
    expected = reference(x, labels)
    (expected_gradient,) = torch.autograd.grad(expected, x)
    value = mean_energy(x, labels, potential)
    (gradient,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(value, expected, rtol=1e-8, atol=0)
    scale = expected_gradient.abs().max()
    torch.testing.assert_close(gradient / scale, expected_gradient / scale, rtol=0, atol=1e-8)


def test_charges_of_one_direction_have_no_force() -> None:
    """Lengths differ, so that unit vectors differ by rounding; that is no direction to push in."""
    torch.manual_seed(0)
    x = torch.randn(1, 40, dtype=torch.float64) * torch.tensor([[1.0], [3.0], [0.7]])
    x.requires_grad_()
    mean_energy(x, torch.arange(3), GrowingPotential(0.2, "hinge")).backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize("alpha", [0.0, 2.5, 6.0])
def test_gradcheck_pfml(alpha: float) -> None:
    torch.manual_seed(1)
    loss = PotentialFieldLoss(4, 3, 2, alpha, 0.2, 0.5).double()
    x = loss.proxies.detach()[[0, 1, 4, 7]] + 0.1 * torch.randn(4, 3, dtype=torch.float64)
    y = torch.tensor([0, 1, 1, 3])

    def value(x: Tensor, p: Tensor) -> Tensor:
        return torch.func.functional_call(loss, {"proxies": p}, (x, y))

    assert torch.autograd.gradcheck(value, (x.requires_grad_(), loss.proxies))


def test_gradcheck_cpml() -> None:
    torch.manual_seed(1)
    loss = ContrastivePotentialLoss(4, 3, 2, 0.9).double()
    x, y = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 3])

    def value(x: Tensor, p: Tensor) -> Tensor:
        return torch.func.functional_call(loss, {"proxies": p}, (x, y))

    assert torch.autograd.gradcheck(value, (x.requires_grad_(), loss.proxies))


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


@pytest.mark.parametrize("potential", POTENTIALS)
def test_forces_sum_to_zero_before_projection(potential: DecayingPotential) -> None:
    x, labels = crowd(60, 0.1)
    state = charges._Charges(x, labels, potential, True)
    state.add_all()
    assert state.force_ND is not None
    total = state.force_ND.sum(dim=0).abs().max()
    assert total < 1e-10 * state.force_ND.abs().max()
    assert state.force_ND.abs().max() > 0


def test_two_charges_of_a_class_rest_inside_delta_and_cpml_pulls_them_likewise() -> None:
    """PFML's attraction is constant inside δ; a CPML pair is pulled harder the farther it is."""
    pfml = DecayingPotential(4.0, 0.2, 0.2, 0.01)
    cpml = GrowingPotential(0.2, "hinge")
    r = torch.tensor([0.1, 0.19, 0.3, 0.6, 1.2], dtype=torch.float64)
    energy = pfml.attraction(r**2)[0]
    assert energy[0] == energy[1] == -1
    assert (energy.diff()[1:] > 0).all()
    pull_pfml, pull_cpml = (2 * r * p.attraction(r**2)[1] for p in (pfml, cpml))
    assert (pull_pfml[2:].diff() < 0).all()
    assert (pull_cpml[2:].diff() > 0).all()


@pytest.mark.parametrize("kind", [PotentialFieldLoss, ContrastivePotentialLoss])
def test_without_proxies_only_samples_meet(kind: type) -> None:
    loss = kind(5, 3, 0)
    assert list(loss.parameters()) == []
    x = torch.randn(1, 3, requires_grad=True)
    value = loss(x, torch.tensor([2]))
    value.backward()
    assert value == 0
    assert torch.equal(x.grad, torch.zeros(1, 3))


def test_proxies_of_a_class_are_consecutive_rows_of_length_one() -> None:
    loss = PotentialFieldLoss(4, 6, 3)
    assert loss.proxies.shape == (12, 6)
    torch.testing.assert_close(loss.proxies.norm(dim=1), torch.ones(12))
    loss.proxies.data = F.one_hot(torch.arange(4), 6).float().repeat_interleave(3, dim=0)
    with torch.no_grad():  # every class in a place of its own: all attraction, constant repulsion
        value = loss(torch.eye(6)[:1], torch.tensor([0]))
    pairs_of_a_class = 4 * 3 + 3 * 3 * 2
    other_pairs = 13 * 12 - pairs_of_a_class
    assert value.item() == pytest.approx((other_pairs - pairs_of_a_class) / 13)


def test_half_precision_is_raised_and_autocast_is_off() -> None:
    torch.manual_seed(0)
    loss = PotentialFieldLoss(7, 5, 2, delta=0.8)
    x, y = torch.randn(9, 5).bfloat16(), torch.tensor([0, 1, 1, 1, 6, 6, 2, 0, 3])
    expected = loss(x.float(), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(x, y)
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)


@pytest.mark.parametrize(
    ("loss", "arguments"),
    [
        (PotentialFieldLoss, {"alpha": -1e-9}),
        (PotentialFieldLoss, {"alpha": math.nan}),
        (PotentialFieldLoss, {"delta": 0.0}),
        (PotentialFieldLoss, {"delta_repulsion": -0.1}),
        (PotentialFieldLoss, {"min_distance": 0.0}),
        (PotentialFieldLoss, {"proxies_per_class": -1}),
        (PotentialFieldLoss, {"proxies_per_class": 1.5}),
        (ContrastivePotentialLoss, {"delta": math.inf}),
        (ContrastivePotentialLoss, {"repulsion": "none"}),
    ],
)
def test_refuses_wrong_hyperparameters(loss: type, arguments: dict) -> None:
    (name,) = arguments
    defaults = {"num_classes": 7, "embedding_size": 5, "proxies_per_class": 2}
    with pytest.raises(ValueError, match=name):
        loss(**(defaults | arguments))


@pytest.mark.parametrize("kind", [PotentialFieldLoss, ContrastivePotentialLoss])
def test_refuses_wrong_inputs(kind: type) -> None:
    loss = kind(7, 5, 2)
    x, y = torch.ones(2, 5), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="labels"):
        loss(x, torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="embeddings"):
        loss(x * math.nan, y)
    with pytest.raises(ValueError, match="ref_emb"):
        loss(x, y, ref_emb=x, ref_labels=y)
