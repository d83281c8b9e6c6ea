import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import (
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
)
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches

FLOATS = [torch.float64, torch.float32]


def distance(u: Tensor, v: Tensor) -> Tensor:
    return 1 - F.normalize(u, dim=1) @ F.normalize(v, dim=1).T


def off_diagonal(matrix: Tensor) -> Tensor:
    return matrix.masked_fill(torch.eye(len(matrix), dtype=torch.bool), 0.0)


def mfcont_reference(x, y, m, m_p, m_n, lambda_mf, average) -> Tensor:
    d = distance(x, m)
    per_image = []
    for i, label in enumerate(y.tolist()):
        others = [c for c in range(len(m)) if c != label]
        pull = (d[i, label] - m_p).clamp_min(0)
        per_image.append(pull + (m_n - d[i, others]).clamp_min(0).sum())
    losses = torch.stack(per_image)
    if average == "sample":
        loss = losses.mean()
    else:
        loss = torch.stack([losses[y == c].mean() for c in y.unique()]).mean()
    between = off_diagonal((m_n - distance(m, m)).clamp_min(0) ** 2)
    return loss + lambda_mf / len(m) * between.sum()


def mfcwms_reference(x, y, m, alpha, beta, delta, lambda_mf, regularizer) -> Tensor:
    classes, present = len(m), y.unique().tolist()
    d = distance(x, m)
    positive = sum(torch.log1p((alpha * (d[y == c, c] + delta - 1)).exp().mean()) for c in present)
    rows = [
        (-beta * (d[y == c] + delta - 1)).exp().mean(dim=0)
        if c in present
        else torch.zeros(classes, dtype=x.dtype)
        for c in range(classes)
    ]
    q = torch.stack(rows)
    negative = off_diagonal(torch.log1p(q + q.T)).sum()
    between = torch.log1p((-beta * (distance(m, m) + delta - 1)).exp())
    if regularizer == "code":
        between = between / beta
    return (
        positive / (alpha * len(present))
        + negative / (2 * beta * len(present))
        + lambda_mf / classes * off_diagonal(between**2).sum()
    )


def mfnca_reference(x, y, m, alpha) -> Tensor:
    s = -alpha * distance(x, m)
    present = y.unique().tolist()
    first = [-(s[y == c].log_softmax(dim=1)[:, c]).mean() for c in present]
    second = [s[:, c].logsumexp(0) - s[y == c, c].logsumexp(0) for c in present]
    return (sum(first) + sum(second)) / len(present)


MARGINS = [[-0.2, 0.02, 0.71, 2.0], [-0.2, 0.3, 1.13, 2.0]]
LAMBDA = [0.0, 1e-3, 100.0]
SCALES = [[0.01, 1.0, 20.0, 100.0], [0.01, 2.0, 80.0, 100.0], [0.0, 0.4, 0.8, 1.0]]
# loss, its equation, and the values of the hyperparameters of both
EQUATIONS = [
    (MeanFieldContrastiveLoss, mfcont_reference, [*MARGINS, LAMBDA, ["sample", "class"]]),
    (MeanFieldClassWiseMultiSimilarityLoss, mfcwms_reference, [*SCALES, LAMBDA, ["code", "paper"]]),
    (MeanFieldNCALoss, mfnca_reference, [[0.01, 1.0, 10.0, 100.0]]),
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("make", "equation", "values"), EQUATIONS)
@settings(max_examples=50, deadline=None)
@given(batch=batches(), data=st.data())
def test_equals_the_equation(make, equation, values, dtype, batch: Batch, data) -> None:
    drawn = [data.draw(st.sampled_from(some)) for some in values]
    torch.manual_seed(batch.seed)
    loss = make(batch.num_classes, batch.embedding_size, *drawn)
    assert_matches(loss, lambda x, y, m: equation(x, y, m, *drawn), batch.x, batch.y, dtype)


def mean_field_losses(num_classes: int, dimensions: int) -> list[torch.nn.Module]:
    return [
        MeanFieldContrastiveLoss(num_classes, dimensions, 0.1, 0.9, lambda_mf=0.5),
        MeanFieldClassWiseMultiSimilarityLoss(num_classes, dimensions, 3, 7, 0.3, lambda_mf=0.5),
        MeanFieldNCALoss(num_classes, dimensions),
    ]


def balanced_batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(8, 5, dtype=torch.float64), torch.tensor([0, 3, 5, 2, 2, 5, 3, 0])


def test_mfnca_with_every_class_once_is_row_plus_column_cross_entropy() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randperm(6)
    loss = MeanFieldNCALoss(6, 4, alpha=5.0).double()
    logits = -5.0 * distance(x, loss.mean_fields)
    rows = F.cross_entropy(logits, y)
    columns = F.cross_entropy(logits.T, y.argsort())
    torch.testing.assert_close(loss(x, y), rows + columns, rtol=1e-12, atol=0)


@pytest.mark.parametrize("index", range(2))
def test_regularizer_value_is_the_term_that_lambda_scales(index: int) -> None:
    x, y = balanced_batch()
    loss = mean_field_losses(7, 5)[index].double()
    value = loss.regularizer_value()
    with_term = loss(x, y)
    loss.lambda_mf = 0.0
    assert value > 0
    assert not value.requires_grad
    torch.testing.assert_close(with_term - loss(x, y), 0.5 * value, rtol=1e-9, atol=0)
    torch.testing.assert_close(loss.regularizer_value(), value, rtol=0, atol=0)


def test_regularizer_over_several_tiles_equals_the_full_matrix() -> None:
    torch.manual_seed(0)
    loss = MeanFieldClassWiseMultiSimilarityLoss(2100, 3, 1, 5, 0.5, lambda_mf=1.0).double()
    x, y = torch.randn(2, 3, dtype=torch.float64), torch.tensor([7, 2099])
    m = loss.mean_fields
    with_term = loss(x, y)
    (gradient,) = torch.autograd.grad(with_term - loss.image_terms(1 - distance(x, m), y), m)
    heights = torch.log1p((-5 * (distance(m, m) + 0.5 - 1)).exp()) / 5
    expected = off_diagonal(heights**2).sum() / 2100
    (expected_gradient,) = torch.autograd.grad(expected, m)
    torch.testing.assert_close(loss.regularizer_value(), expected.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-12)


def test_empty_slots_of_a_gpu_change_nothing_for_steep_exponentials(monkeypatch) -> None:
    torch.manual_seed(10)
    x, y = torch.randn(1, 4) + 0.01 * torch.randn(8, 4), torch.tensor([0, 3, 5, 2, 2, 5, 3, 0])
    loss = MeanFieldClassWiseMultiSimilarityLoss(7, 4, 100, 1000, -0.5)
    results = []
    for gpu in (False, True):
        monkeypatch.setattr("torch.compiler.is_compiling", lambda gpu=gpu: gpu)  # as many slots
        x.requires_grad_().grad = loss.mean_fields.grad = None
        value = loss(x, y)
        value.backward()
        results.append([value.detach(), x.grad, loss.mean_fields.grad])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e25, 3e38])
@pytest.mark.parametrize("index", range(3))
def test_extreme_embeddings_stay_finite(index, scale) -> None:
    torch.manual_seed(0)
    x = (torch.randn(6, 5).clamp(-1, 1) * scale).requires_grad_()
    loss = mean_field_losses(7, 5)[index]
    value = loss(x, torch.tensor([0, 1, 1, 1, 6, 6]))
    value.backward()
    assert value.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert loss.mean_fields.grad.isfinite().all()
