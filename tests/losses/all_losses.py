"""All losses of this package, small and ready to be called, for tests that apply to all of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dml.losses import (
    C1Loss,
    C2Loss,
    CenterContrastiveLoss,
    ClassBalancedContrastiveLoss,
    ClassWiseMultiSimilarityLoss,
    ContrastivePotentialLoss,
    HISTLoss,
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
    PotentialFieldLoss,
    ProxyNCALoss,
    ProxyNCAPlusPlusLoss,
    RecallAtKLoss,
    SmoothAPLoss,
    generic,
)
from dml.losses.all_triplets import AllTripletsLoss
from dml.losses.metric_loss import PairLoss

LOSSES: dict[str, Callable[[], nn.Module]] = {
    "mfcont": lambda: MeanFieldContrastiveLoss(7, 5, 0.1, 0.9, average="class"),
    "mfcwms": lambda: MeanFieldClassWiseMultiSimilarityLoss(7, 5, 3, 7, 0.3),
    "mfcwms with regularizer": lambda: MeanFieldClassWiseMultiSimilarityLoss(7, 5, 3, 7, 0.3, 0.5),
    "mfnca": lambda: MeanFieldNCALoss(7, 5),
    "cwms": lambda: ClassWiseMultiSimilarityLoss(2, 50, 0.5),
    "cbcont": lambda: ClassBalancedContrastiveLoss(0.02, 0.3),
    "c1": C1Loss,
    "c2": C2Loss,
    "proxy_nca": lambda: ProxyNCALoss(7, 5, 3.0),
    "proxy_nca_pp": lambda: ProxyNCAPlusPlusLoss(7, 5),
    "center_contrastive": lambda: CenterContrastiveLoss(7, 5, 4.0, 0.2),
    "pfml": lambda: PotentialFieldLoss(7, 5, 2, delta=0.6),
    "triplet": AllTripletsLoss,
    "smooth_ap": lambda: SmoothAPLoss(0.1),
    "recall_at_k": lambda: RecallAtKLoss(0.1),
    "hist": lambda: HISTLoss(7, 5, 6, 4.0),
    "generic contrastive": generic.ContrastiveLoss,
    "generic ms": generic.MultiSimilarityLoss,
    "generic proxy_anchor": lambda: generic.ProxyAnchorLoss(7, 5),
    "generic proxy_nca_pp": lambda: generic.ProxyNCAPlusPlusLoss(7, 5),
    "generic contrastive_cosine": lambda: generic.ContrastiveLoss(form="cosine"),
    "generic lifted_structure": generic.LiftedStructureLoss,
    "generic binomial_deviance": generic.BinomialDevianceLoss,
    "generic nca": generic.NCALoss,
    "generic proxy_nca_original": lambda: generic.OriginalProxyNCALoss(7, 5),
    "cpml": lambda: ContrastivePotentialLoss(7, 5, 2, delta=0.6),
}
PAIR_LOSSES = [name for name, make in LOSSES.items() if isinstance(make(), PairLoss)]
PROXY_LOSSES = [name for name in LOSSES if name not in PAIR_LOSSES]


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(9, 5), torch.tensor([0, 3, 5, 2, 2, 5, 3, 0, 2])


def value_and_gradients(
    call: Callable[..., Tensor], loss: nn.Module, x: Tensor, y: Tensor
) -> list[Tensor]:
    x = x.detach().requires_grad_()
    value = call(x, y)
    return [value.detach(), *torch.autograd.grad(value, [x, *loss.parameters()])]
