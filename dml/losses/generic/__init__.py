"""The generic losses of Metrix (metrix, Table 1), which work on clean and on mixed examples.

forms         each loss as terms of similarities and soft labels
pair_losses   contrastive, lifted structure, binomial deviance, multi-similarity, NCA
proxy_losses  Proxy Anchor, and ProxyNCA without the positive in the denominator (ProxyNCA++ is
              that of `dml.losses`)
conversion    the form of another loss: ProxyNCA(++) of `dml.losses`, losses of
              pytorch-metric-learning
"""

from dml.losses.generic.conversion import find_generic_form
from dml.losses.generic.pair_losses import (
    BinomialDevianceLoss,
    ContrastiveLoss,
    GenericPairLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NCALoss,
)
from dml.losses.generic.proxy_losses import (
    GenericProxyLoss,
    OriginalProxyNCALoss,
    ProxyAnchorLoss,
    compute_proxy_loss,
)
from dml.losses.proxy_nca import ProxyNCAPlusPlusLoss

__all__ = [
    "BinomialDevianceLoss",
    "ContrastiveLoss",
    "GenericPairLoss",
    "GenericProxyLoss",
    "LiftedStructureLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "OriginalProxyNCALoss",
    "ProxyAnchorLoss",
    "ProxyNCAPlusPlusLoss",
    "compute_proxy_loss",
    "find_generic_form",
]
