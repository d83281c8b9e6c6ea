"""Losses of the papers, in the calling convention of pytorch-metric-learning."""

from dml.losses.mean_field import (
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
)

__all__ = [
    "MeanFieldClassWiseMultiSimilarityLoss",
    "MeanFieldContrastiveLoss",
    "MeanFieldNCALoss",
]
