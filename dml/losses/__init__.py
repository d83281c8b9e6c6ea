"""Losses of the papers, in the calling convention of pytorch-metric-learning.

Losses, by paper (`mft`: mean field theory, `pfml`: potential fields, `ccp`: chance constraints,
`metrix`: mixup):

mean_field       mft: MFCont (Eq. 8), MFCWMS (Eq. 10), MFNCA (Eq. 21)
class_wise       mft: class-wise multi-similarity (Eq. 9), class-balanced contrastive (Eq. 6)
potential_field  pfml: PFML, and CPML for comparison
c1_c2            ccp: C1 and C2
all_triplets     ccp: triplet margin loss over all triplets of a batch and references
generic/         metrix: the losses of Table 1 for clean and mixed examples
proxy_nca        ProxyNCA, ProxyNCA++ and Center Contrastive in a form that cannot underflow
soft_triple      the regularizer of SoftTriple for many centers
ranking          Smooth-AP, and the surrogate of Recall@k
hypergraph       HIST

The other files of `configs/loss` name losses of pytorch-metric-learning in `_target_`.

Building blocks:

metric_loss             base classes: losses with proxies, losses of pairs
mined_pairs             the tuples of miners: checks, masks of pairs, weights of images
pml_adapter             a loss as a subclass of pytorch-metric-learning's base class
arguments               checks of embeddings, labels and hyperparameters
cosine, distances       similarities, distances and normalization of vectors
class_groups            images of a batch grouped by class; means in log space
potential_energy        energy and forces of all charges, tile by tile
potential_functions     potentials of two charges as functions of their distance
custom_backward         decorator for hand-written gradients
"""

from dml.losses.c1_c2 import C1Loss, C2Loss
from dml.losses.class_wise import ClassBalancedContrastiveLoss, ClassWiseMultiSimilarityLoss
from dml.losses.hypergraph import HISTLoss
from dml.losses.mean_field import (
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
)
from dml.losses.potential_field import ContrastivePotentialLoss, PotentialFieldLoss
from dml.losses.proxy_nca import CenterContrastiveLoss, ProxyNCALoss, ProxyNCAPlusPlusLoss
from dml.losses.ranking import RecallAtKLoss, SmoothAPLoss
from dml.losses.soft_triple import CentersRegularizer

__all__ = [
    "C1Loss",
    "C2Loss",
    "CenterContrastiveLoss",
    "CentersRegularizer",
    "ClassBalancedContrastiveLoss",
    "ClassWiseMultiSimilarityLoss",
    "ContrastivePotentialLoss",
    "HISTLoss",
    "MeanFieldClassWiseMultiSimilarityLoss",
    "MeanFieldContrastiveLoss",
    "MeanFieldNCALoss",
    "PotentialFieldLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "RecallAtKLoss",
    "SmoothAPLoss",
]
