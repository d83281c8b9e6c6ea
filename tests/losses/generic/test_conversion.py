"""Generic forms of losses."""

import pytest
from pytorch_metric_learning import distances, reducers
from pytorch_metric_learning import losses as pml

import dml.losses
from dml.losses import generic
from dml.losses.generic import forms


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


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (pml.TripletMarginLoss(), "TripletMarginLoss is not additive"),
        (dml.losses.MeanFieldContrastiveLoss(6, 5), "MeanFieldContrastiveLoss is not additive"),
        (pml.ContrastiveLoss(distance=distances.CosineSimilarity()), "CosineSimilarity"),
        (pml.ContrastiveLoss(reducer=reducers.MeanReducer()), "MeanReducer"),
        (pml.MultiSimilarityLoss(distance=distances.LpDistance()), "LpDistance"),
    ],
)
def test_a_loss_that_has_no_form_says_why(loss, message):
    with pytest.raises(ValueError, match=message):
        generic.find_generic_form(loss)
