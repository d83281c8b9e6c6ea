"""Analyses of Metrix: mixed embeddings, positivity, and changes of similarities."""

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch.nn import functional as F

from dml.core.errors import UserError
from dml.methods.metrix import TYPES, Metrix
from dml.methods.metrix.analysis import embed_mixes, measure_positivity, similarity_changes
from dml.retrieval.geometry import utilization
from dml.runs.figures.run_figures import draw_positivity
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def batches(count):
    torch.manual_seed(0)
    return [(torch.randn(7, 3, 6, 6, dtype=torch.float64), LABELS) for _ in range(count)]


@pytest.mark.parametrize("kind", TYPES)
def test_mixed_embeddings_can_only_lower_the_utilization(kind):
    embedder = tiny_embedder()
    (images, _), (others, _) = batches(2)
    queries, training = embedder(others).detach(), embedder(images).detach()
    mixed = list(embed_mixes(Metrix(pml.MultiSimilarityLoss(), types=[kind]), embedder,
                                  [(images, LABELS)]))  # fmt: skip
    assert torch.allclose(mixed[0].norm(dim=1), torch.ones(len(mixed[0]), dtype=torch.float64))
    assert utilization(queries, [training, *mixed]) < utilization(queries, training)
    assert utilization(queries, queries) < 1e-12


def test_single_mixes_are_positive_exactly_as_predicted():
    """One positive and one negative: the paper's simplifying assumption holds."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 1])
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), labels) for _ in range(200)]
    curve = measure_positivity(pml.MultiSimilarityLoss(2, 4, 0.7), tiny_embedder(), images, bins=5)
    torch.testing.assert_close(curve.measured, curve.predicted, equal_nan=True)
    shares = curve.measured[~curve.measured.isnan()]
    assert shares[0] < shares[-1]


def test_a_loss_without_a_prediction_has_a_measured_curve(tmp_path):
    curve = measure_positivity(pml.ContrastiveLoss(0, 1.2), tiny_embedder(), batches(5))
    assert curve.predicted is None
    assert not curve.measured.isnan().all()
    draw_positivity(curve, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    first, line = (tmp_path / "curve.csv").read_text().splitlines()[:2]
    assert first == "lambda,measured,predicted"
    assert (line.startswith("0.025,"), line.endswith(",nan")) == (True, True)


def test_one_class_alone_is_one_line():
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), torch.zeros(3, dtype=torch.long))]
    with pytest.raises(UserError, match=r"data\.batch_size"):
        measure_positivity(pml.MultiSimilarityLoss(), tiny_embedder(), images)


def draw(seed=0, items=8, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(items, dim, generator=generator).double(), torch.arange(items) // 2


def contrastive(u, labels):
    similar = (u @ u.T)[torch.ones(len(u), len(u)).triu(1).bool()]
    same = (labels[:, None] == labels)[torch.ones(len(u), len(u)).triu(1).bool()]
    return (1 - similar[same]).sum() + similar[~same].clamp(min=-0.2).exp().sum()


def test_they_equal_the_difference_of_a_small_step():
    x, labels = draw()
    found = similarity_changes(lambda u: contrastive(u, labels), x, labels)
    u = F.normalize(x).requires_grad_()
    contrastive(u, labels).backward()
    sphere = u.grad - (u.grad * u).sum(1, keepdim=True) * u
    step = 1e-7
    moved = F.normalize(u - step * sphere / sphere.norm())
    change = ((moved @ moved.T - u @ u.T) / step).detach()
    above = torch.ones(len(x), len(x)).triu(1).bool()
    same = labels[:, None] == labels
    assert found.positive == pytest.approx(float(change[same & above].mean()), abs=1e-5)
    assert found.negative == pytest.approx(float(change[~same & above].mean()), abs=1e-5)
    assert found.positive_share == float((change[same & above] > 0).double().mean())
    assert found.negative_share == float((change[~same & above] > 0).double().mean())


def test_a_loss_that_attracts_positives_raises_them_alone():
    x, labels = torch.eye(4).double(), torch.tensor([0, 0, 1, 1])
    found = similarity_changes(lambda u: -(u[0] * u[1]).sum() - (u[2] * u[3]).sum(), x, labels)
    assert (found.positive_share, found.negative_share) == (1.0, 0.0)
    assert found.positive > 0
    assert found.negative == 0


def test_none_without_a_gradient_or_without_pairs():
    x, labels = draw()
    assert similarity_changes(lambda u: 0 * u.sum(), x, labels) is None
    assert similarity_changes(lambda u: u.sum(), x, torch.arange(len(x))) is None
