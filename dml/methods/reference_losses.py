"""Pair losses between a batch and references (proxies, a memory), as ccp defines them.

The embedder's normalizer decides how long vectors are: under ccp they are clipped to the unit
ball, s is their inner product and r their distance. Losses that would normalize once more, as those
of pytorch-metric-learning do, are told not to; on unit vectors that makes no difference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dml.core.errors import UserError
from dml.losses.triplet import AllTripletsLoss


def for_references(loss: nn.Module, miner: Any, embedding_size: int, method: str) -> nn.Module:
    """The loss in a form that takes many references and embeddings of any length.

    Args:
        loss: a loss of pairs or triplets; its distance is told to take vectors as they are.
        miner: must be None: all pairs with references count.
        embedding_size: D.
        method: name of the method, for messages.

    Raises:
        UserError: there is a miner, or the loss takes no references.
    """
    if miner is not None:
        raise UserError(
            f"loss.miner: method '{method}' compares all pairs and takes no miner; "
            f"use the loss without it (ms instead of ms_miner) or loss.miner=null"
        )
    if type(loss).__module__.startswith("pytorch_metric_learning."):
        take_vectors_as_they_are(loss)
        loss = _without_triplet_list(loss)
    _try(loss, embedding_size, method)
    return loss


def take_vectors_as_they_are(loss: nn.Module) -> None:
    """Tells the distances of a loss or miner of pytorch-metric-learning not to normalize."""
    from pytorch_metric_learning.distances import BaseDistance

    for module in loss.modules():
        if isinstance(module, BaseDistance):
            module.normalize_embeddings = False


def _without_triplet_list(loss: nn.Module) -> nn.Module:
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.reducers import AvgNonZeroReducer

    if (
        type(loss) is TripletMarginLoss
        and type(loss.distance) is LpDistance
        and (loss.distance.p, loss.distance.power) == (2, 1)  # type: ignore[union-attr]
        and type(loss.reducer) is AvgNonZeroReducer
        and loss.embedding_regularizer is None
        and (loss.swap, loss.smooth_loss, loss.triplets_per_anchor) == (False, False, "all")
    ):
        return AllTripletsLoss(loss.margin)  # the same without a list of all triplets
    return loss


def _try(loss: nn.Module, embedding_size: int, method: str) -> None:
    """Finds out before training whether the loss takes references."""
    x_BD = torch.eye(2, embedding_size)
    labels_B = torch.tensor([0, 1])
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            loss(x_BD, labels_B, ref_emb=x_BD.repeat(2, 1), ref_labels=labels_B.repeat(2))
    except Exception as error:  # each loss has a way of its own to say that it cannot
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"loss: method '{method}' compares a batch with references, and "
            f"{type(loss).__name__} takes none ({reason}); "
            f"use c1, c2, ms, triplet or another loss of pairs"
        ) from error
    finally:
        torch.set_rng_state(state)
