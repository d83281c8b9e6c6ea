"""The generic form of a loss, also of pytorch-metric-learning's."""

from __future__ import annotations

from typing import Any

from dml.losses.generic import forms
from dml.losses.proxy_nca import ProxySoftmaxLoss


def find_generic_form(loss: Any) -> forms.Form:
    """Returns the generic form of a loss, with the hyperparameters of the loss.

    A loss whose form has proxies holds them in its attribute `proxies`.

    Args:
        loss: one with an attribute `form`, such as the losses of `dml.losses.generic`; ProxyNCA or
            ProxyNCA++ of `dml.losses`; ContrastiveLoss, MultiSimilarityLoss or ProxyAnchorLoss of
            pytorch-metric-learning.

    Raises:
        ValueError: the loss has no generic form, or an option that the form cannot express.
    """
    form = getattr(loss, "form", None)
    if isinstance(form, forms.Form):
        return form
    if isinstance(loss, ProxySoftmaxLoss):  # the positive is in the denominator
        return forms.ProxyNCA(loss.scale, positives_below=True)
    # Late: dml.losses works without pytorch-metric-learning.
    from pytorch_metric_learning import losses as pml

    if type(loss) is pml.ContrastiveLoss:
        _check_default_options(loss, euclidean=True)
        return forms.make_contrastive(loss.neg_margin, loss.pos_margin, average="terms")
    if type(loss) is pml.MultiSimilarityLoss:
        _check_default_options(loss)
        return forms.MultiSimilarity(**forms.check_exponents(loss.alpha, loss.beta, loss.base))
    if type(loss) is pml.ProxyAnchorLoss:
        _check_default_options(loss)
        return forms.ProxyAnchor(**forms.check_exponents(loss.alpha, loss.alpha, loss.margin))
    raise ValueError(f"{type(loss).__name__} is not additive over positives and negatives")


def _check_default_options(loss: Any, euclidean: bool = False) -> None:
    """Raises ValueError unless distance and reducer are the defaults of the loss."""
    from pytorch_metric_learning.distances import CosineSimilarity, LpDistance

    d = loss.distance
    if euclidean:
        is_default = type(d) is LpDistance and d.p == 2 and d.power == 1 and d.normalize_embeddings
    else:
        is_default = type(d) is CosineSimilarity
    if not is_default:
        raise ValueError(f"{type(loss).__name__} with distance {type(d).__name__} has no such form")
    several = getattr(loss.reducer, "reducers", {})  # one for each term of the loss
    for reducer in [several[n] for n in loss._sub_loss_names() if n in several] or [loss.reducer]:
        if type(reducer) is not type(loss.get_default_reducer()):
            raise ValueError(
                f"{type(loss).__name__} with reducer {type(reducer).__name__} has no such form"
            )
