"""The baselines of the papers: losses of pytorch-metric-learning in a vectorized form.

Each class is a subclass of the loss of its name there: the same arguments, parameters and state,
the same values and gradients up to rounding, in less time and without lists of pairs and triplets,
for which the host would wait for a GPU. An option that the vectorized form does not have (random
triplets, another reducer of pairs) is computed by the code of the parent class.

Unlike `dml.losses`, this package needs pytorch-metric-learning.
"""

from dml.losses.baselines.classes import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    SoftTripleLoss,
)
from dml.losses.baselines.pairs import (
    CircleLoss,
    ContrastiveLoss,
    MultiSimilarityLoss,
    NTXentLoss,
    SignalToNoiseRatioContrastiveLoss,
    SupConLoss,
)
from dml.losses.baselines.rankings import FastAPLoss, NPairsLoss
from dml.losses.baselines.triplets import MarginLoss, TripletMarginLoss

__all__ = [
    "ArcFaceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "FastAPLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NPairsLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "SignalToNoiseRatioContrastiveLoss",
    "SoftTripleLoss",
    "SupConLoss",
    "TripletMarginLoss",
]
