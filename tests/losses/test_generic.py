"""Generic losses compared with pytorch-metric-learning, extreme inputs, and their forms."""

import pytest
import torch
from pytorch_metric_learning import distances, reducers
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.regularizers import LpRegularizer
from torch import Tensor

import dml.losses
from dml.losses import baselines, generic
from dml.losses.generic import forms

BALANCED = torch.arange(12) % 4


UNBALANCED = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def batch(labels: Tensor) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(len(labels), 5, dtype=torch.float64, requires_grad=True)


def assert_equal(ours, theirs, x: Tensor, y: Tensor) -> None:
    """Compares values and gradients, including those of proxies."""
    mine, others = ours(x, y), theirs(x, y)
    torch.testing.assert_close(mine, others, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(mine, [x, *ours.parameters()]),
        torch.autograd.grad(others, [x, *theirs.parameters()]),
        rtol=1e-8,
        atol=1e-11,
    )


COSINE = distances.CosineSimilarity()


@pytest.mark.parametrize("y", [BALANCED, UNBALANCED])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            generic.LiftedStructureLoss(0.3),
            pml.GeneralizedLiftedStructureLoss(neg_margin=0.3, distance=COSINE),
        ),
        (generic.ProxyNCAPlusPlusLoss(6, 5, 0.3), dml.losses.ProxyNCAPlusPlusLoss(6, 5, 0.3)),
    ],
)
def test_is_the_usual_loss_of_its_name(ours, theirs, y):
    ours.load_state_dict(theirs.state_dict())
    assert_equal(ours.double(), theirs.double(), batch(y), y)


def test_contrastive_is_pmls_where_all_anchors_have_equally_many_terms():
    """On a balanced batch with all negatives within the margin, both means have the same terms."""
    x = batch(BALANCED)
    assert_equal(
        generic.ContrastiveLoss(2.5, 0.0), pml.ContrastiveLoss(0, 2.5), x, BALANCED
    )  # no distance of unit vectors reaches 2.5


def test_proxy_nca_of_the_table_leaves_the_positive_out_of_the_sum():
    x = batch(UNBALANCED)
    loss = generic.OriginalProxyNCALoss(6, 5).double()
    s = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(loss.proxies).T
    own = torch.nn.functional.one_hot(UNBALANCED, 6).bool()
    expected = (s.masked_fill(own, -torch.inf).logsumexp(dim=1) - s[own]).mean()
    torch.testing.assert_close(loss(x, UNBALANCED), expected)


@pytest.mark.parametrize(
    ("loss", "form"),
    [
        (pml.ContrastiveLoss(0.1, 0.7), forms.EuclideanContrastive(0.7, 0.1, "terms")),
        (pml.MultiSimilarityLoss(3, 7, 0.2), forms.MultiSimilarity(3.0, 7.0, 0.2)),
        (pml.ProxyAnchorLoss(6, 5, 0.2, 16), forms.ProxyAnchor(16.0, 16.0, 0.2)),
        (dml.losses.ProxyNCALoss(6, 5, 3.0), forms.ProxyNCA(6.0, True)),
        (dml.losses.ProxyNCAPlusPlusLoss(6, 5, 0.5), forms.ProxyNCA(2.0, True)),
    ],
)
def test_form_takes_the_hyperparameters_of_the_clean_loss(loss, form):
    assert generic.find_generic_form(loss) == form


def only(**named):
    return reducers.MultipleReducers(named)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (pml.TripletMarginLoss(), "TripletMarginLoss is not additive"),
        (dml.losses.MeanFieldContrastiveLoss(6, 5), "MeanFieldContrastiveLoss is not additive"),
        (pml.ContrastiveLoss(distance=distances.CosineSimilarity()), "CosineSimilarity"),
        (pml.ContrastiveLoss(reducer=reducers.MeanReducer()), "MeanReducer"),
        # the other term takes the default reducer, which is not the loss's own
        (pml.ContrastiveLoss(reducer=only(pos_loss=reducers.AvgNonZeroReducer())), "MeanReducer"),
        (pml.ContrastiveLoss(reducer=only(neg_loss=reducers.SumReducer())), "Reducer has no"),
        (pml.ContrastiveLoss(reducer=reducers.DoNothingReducer()), "DoNothingReducer"),
        (pml.MultiSimilarityLoss(distance=distances.LpDistance()), "LpDistance"),
    ],
)
def test_a_loss_that_has_no_form_says_why(loss, message):
    with pytest.raises(ValueError, match=message):
        generic.find_generic_form(loss)


@pytest.mark.parametrize("y", [BALANCED, UNBALANCED, torch.arange(6)])
@pytest.mark.parametrize(
    "loss",
    [
        baselines.ContrastiveLoss(0.1, 1.2),
        baselines.MultiSimilarityLoss(3, 7, 0.2),
        baselines.ProxyAnchorLoss(6, 5, 0.2, 16),
    ],
)
def test_the_form_of_a_baseline_is_the_baseline(loss, y):
    """So that an example that is not mixed counts as in plain training."""
    loss, x, form = loss.double(), batch(y), generic.find_generic_form(loss)
    if form.anchors == "proxies":
        value = generic.compute_proxy_loss(form, x, y, loss.proxies)
    else:
        value = generic.GenericPairLoss(form)(x, y)
    inputs = [x, *loss.parameters()]
    for mine, theirs in zip(
        (value, *torch.autograd.grad(value, inputs)),
        (loss(x, y), *torch.autograd.grad(loss(x, y), inputs)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)


def test_the_form_needs_default_reducers_of_all_terms():
    """A term without a reducer takes the default one; a regularizer is reduced already."""
    average = reducers.AvgNonZeroReducer
    plain = generic.find_generic_form(pml.ContrastiveLoss())
    reducer = reducers.MultipleReducers({"pos_loss": average()}, default_reducer=average())
    assert generic.find_generic_form(pml.ContrastiveLoss(reducer=reducer)) == plain
    regularized = pml.ContrastiveLoss(
        reducer=only(pos_loss=average(), neg_loss=average()), embedding_regularizer=LpRegularizer()
    )
    assert generic.find_generic_form(regularized) == plain


def test_distances_of_similarities_are_those_above_the_rounding_error():
    """In float32 equal vectors would else be 3e-4 apart, with a gradient of any direction."""
    apart = torch.logspace(-6, 0.3, 50, dtype=torch.float64)
    torch.testing.assert_close(forms.distance(1 - apart**2 / 2), apart, rtol=1e-3, atol=0)
    wide = torch.logspace(-2.5, 0.3, 50)
    torch.testing.assert_close(forms.distance(1 - wide**2 / 2), wide, rtol=0.02, atol=0)
    same = torch.tensor([1.0, 1 - 6e-8, 1 + 1.2e-7], requires_grad=True)
    found = forms.distance(same)
    assert not found.any()
    assert not torch.autograd.grad(found.sum(), same)[0].any()
