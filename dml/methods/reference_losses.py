"""Preparation of pair losses for a batch and references (proxies, a memory), as in ccp.

Under ccp the embedder clips vectors to the unit ball; s is their inner product and r their
distance. Losses of pytorch-metric-learning would normalize the vectors again; this is disabled,
which makes no difference for unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.all_triplets import AllTripletsLoss
from dml.losses.metric_loss import PairLoss, pair_masks
from dml.methods.mining import Miner, drop_self_pairs, mine_pairs

_OF_PAIRS = "use c1, c2, ms, triplet or another loss of pairs"
_WITH_REFERENCES = (
    "use a miner that is called as miner(embeddings, labels, ref_emb, ref_labels), "
    "or loss.miner=null"
)


def prepare_for_references(
    loss: nn.Module, miner: Any, embedding_size: int, method: str
) -> nn.Module:
    """Returns the loss in a form for many references and embeddings of any length.

    Args:
        loss: a loss of pairs or triplets; normalization in its distance is disabled.
        miner: must be None: all pairs with references count.
        embedding_size: D.
        method: name of the method, for messages.

    Raises:
        UserError: there is a miner, or the loss does not accept references.
    """
    if miner is not None:
        raise UserError(
            f"loss.miner: method '{method}' compares all pairs and cannot use a miner; "
            f"use the loss without it (ms instead of ms_miner) or loss.miner=null"
        )
    if _is_from_pml(loss):
        disable_normalization(loss)
        loss = _replace_triplet_margin_loss(loss)
    _check_references(loss, embedding_size, method)
    return loss


def prepare_for_mined_references(
    loss: nn.Module, miner: Miner, embedding_size: int, method: str
) -> nn.Module:
    """Returns the loss in a form for mined pairs with references and embeddings of any length.

    Args:
        loss: a loss of pairs or triplets; normalization in its distance is disabled.
        miner: called with a batch and references; normalization in its distance is disabled.
        embedding_size: D.
        method: name of the method, for messages.

    Raises:
        UserError: the miner or the loss does not accept references.
    """
    for part in (loss, miner):
        if _is_from_pml(part):
            disable_normalization(part)
    _check_mined_references(loss, miner, embedding_size, method)
    return loss


def compute_reference_loss(
    loss: nn.Module,
    embeddings: Tensor,
    labels: Tensor,
    references: tuple[Tensor, Tensor],
    self_index: Tensor,
) -> Any:
    """Returns what the loss returns for a batch and references that contain it, without self-pairs.

    Losses of this package exclude self-pairs by `self_index`; losses of pytorch-metric-learning
    receive all other pairs as `indices_tuple`. Any other loss includes self-pairs.

    Args:
        loss: as returned by `prepare_for_references`.
        embeddings: B×D.
        labels: B.
        references: R×D embeddings and R labels.
        self_index: row of each embedding in the references (B).
    """
    ref_emb, ref_labels = references
    arguments: dict[str, Any] = {"ref_emb": ref_emb, "ref_labels": ref_labels}
    if isinstance(loss, PairLoss):
        arguments["self_index"] = self_index
    elif _is_from_pml(loss):
        positive_BR, negative_BR = pair_masks(labels, ref_labels, self_index)
        arguments["indices_tuple"] = (
            *positive_BR.nonzero(as_tuple=True),
            *negative_BR.nonzero(as_tuple=True),
        )
    return loss(embeddings, labels, **arguments)


def _is_from_pml(part: Any) -> TypeGuard[nn.Module]:
    """Returns whether a loss or miner is the library's, or a baseline in our form of it."""
    return type(part).__module__.startswith(("pytorch_metric_learning.", "dml.losses.baselines."))


def disable_normalization(loss: nn.Module) -> None:
    """Disables normalization in the distances of a loss or miner of pytorch-metric-learning."""
    from pytorch_metric_learning.distances import BaseDistance

    for module in loss.modules():
        if isinstance(module, BaseDistance):
            module.normalize_embeddings = False


def _replace_triplet_margin_loss(loss: nn.Module) -> nn.Module:
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.reducers import AvgNonZeroReducer

    from dml.losses import baselines

    if (
        type(loss) in (TripletMarginLoss, baselines.TripletMarginLoss)
        and type(loss.distance) is LpDistance
        and (loss.distance.p, loss.distance.power) == (2, 1)  # type: ignore[union-attr]
        and type(loss.reducer) is AvgNonZeroReducer
        and loss.embedding_regularizer is None
        and (loss.swap, loss.smooth_loss, loss.triplets_per_anchor) == (False, False, "all")
    ):
        return AllTripletsLoss(loss.margin)  # equal, without a list of all triplets
    return loss


def _check_references(loss: nn.Module, embedding_size: int, method: str) -> None:
    """Raises UserError, before any training, if the loss does not accept references."""
    x_BD, labels_B, references = _make_batch(embedding_size)
    ref_emb, ref_labels = references
    with _report_refusals(
        f"loss: method '{method}' compares a batch with references", loss, _OF_PAIRS
    ):
        loss(x_BD, labels_B, ref_emb=ref_emb, ref_labels=ref_labels)


def _check_mined_references(
    loss: nn.Module, miner: Miner, embedding_size: int, method: str
) -> None:
    """Raises UserError, before any training, if miner or loss does not accept references."""
    x_BD, labels_B, references = _make_batch(embedding_size)
    ref_emb, ref_labels = references
    self_B = torch.arange(len(labels_B))
    purpose = f"loss.miner: method '{method}' mines pairs of a batch and references"
    with _report_refusals(purpose, miner, _WITH_REFERENCES):
        mined = drop_self_pairs(mine_pairs(miner, x_BD, labels_B, references), self_B)
    purpose = f"loss: method '{method}' with a miner passes mined pairs and references"
    with _report_refusals(purpose, loss, _OF_PAIRS):
        loss(x_BD, labels_B, mined, ref_emb=ref_emb, ref_labels=ref_labels)


def _make_batch(embedding_size: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Returns two embeddings, their labels, and references that hold each twice."""
    x_BD = torch.eye(2, embedding_size)
    labels_B = torch.tensor([0, 1])
    return x_BD, labels_B, (x_BD.repeat(2, 1), labels_B.repeat(2))


@contextmanager
def _report_refusals(purpose: str, part: Any, advice: str) -> Iterator[None]:
    """Raises UserError in one line for any error inside; the generator of torch is restored."""
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            yield
    except Exception as error:  # losses and miners reject references with different errors
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{purpose}, and {type(part).__name__} cannot ({reason}); {advice}"
        ) from error
    finally:
        torch.set_rng_state(state)
