"""Losses of the papers, in the calling convention of pytorch-metric-learning."""

from dml.losses.class_wise import ClassBalancedContrastiveLoss, ClassWiseMultiSimilarityLoss
from dml.losses.mean_field import (
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
)
from dml.losses.pairwise import C1Loss, C2Loss
from dml.losses.potential_field import ContrastivePotentialLoss, PotentialFieldLoss
from dml.losses.proxy_nca import ProxyNCALoss, ProxyNCAPlusPlusLoss
from dml.losses.soft_triple import CentersRegularizer

__all__ = [
    "C1Loss",
    "C2Loss",
    "CentersRegularizer",
    "ClassBalancedContrastiveLoss",
    "ClassWiseMultiSimilarityLoss",
    "ContrastivePotentialLoss",
    "MeanFieldClassWiseMultiSimilarityLoss",
    "MeanFieldContrastiveLoss",
    "MeanFieldNCALoss",
    "PotentialFieldLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
]
