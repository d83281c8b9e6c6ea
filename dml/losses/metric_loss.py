"""Base classes of the losses: calling convention, argument checks, precision.

Shapes: B images in a batch, D embedding dimensions, C classes, R references.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from dml.losses.arguments import ValueChecks, check_batch, check_integer, refuse_arguments
from dml.losses.mined_pairs import Mined, check_mined, image_weights, mined_masks


class MetricLoss(nn.Module):
    """A loss called as `loss(embeddings, labels, indices_tuple, ref_emb, ref_labels) -> scalar`.

    This is the convention of pytorch-metric-learning: each package's losses work in the other's
    code. An additional optional argument, `self_index`, is described in `PairLoss`. Losses run with
    autocast off: half precision is converted to float32, float64 is kept. Embeddings and labels are
    checked; inside `torch.compile` and CUDA graphs only their shapes and types, because reading
    values would wait for the device.
    """

    def without_autocast(self, embeddings: Tensor) -> torch.autocast:
        """Returns a context without autocast, in which losses run."""
        return torch.autocast(device_type=embeddings.device.type, enabled=False)

    def extra_repr(self) -> str:
        """Returns the hyperparameters, named as the arguments of the constructor."""
        names = inspect.signature(type(self)).parameters
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name))


class ClassificationLoss(MetricLoss):
    """A loss of images and learnable vectors, with one or several vectors per class.

    Args:
        num_classes: C, at least 1; labels are 0..C−1.
        embedding_size: D, at least 1.

    Attributes:
        mined_images: images of an `indices_tuple` that are counted for the weights of the images:
            `all` or `anchors`, as in the most similar loss of pytorch-metric-learning; `none`: the
            loss has no terms of single images, and ignores the tuple with a warning.
    """

    mined_images: ClassVar[Literal["all", "anchors", "none"]] = "none"

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.num_classes = check_integer("num_classes", num_classes, at_least=1)
        self.embedding_size = check_integer("embedding_size", embedding_size, at_least=1)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch as a scalar.

        Args:
            embeddings: B×D, finite; need not be normalized.
            labels: B integers from 0 to C−1.
            indices_tuple: pairs or triplets of a miner (`mined_pairs`). Every image is still
                compared with every class; the term of an image is multiplied by its weight: its
                count in the tuple, divided by the largest count (see `mined_images`).
            ref_emb: must be None: the references are the parameters of this loss.
            ref_labels: must be None.
            self_index: must be None.

        Raises:
            ValueError: an argument has the wrong shape, type or values; the message names it.
        """
        refuse_arguments(self, ref_emb=ref_emb, ref_labels=ref_labels, self_index=self_index)
        checks = ValueChecks(self)
        with self.without_autocast(embeddings):
            x_BD, labels_B = check_batch(
                embeddings, labels, checks, self.num_classes, self.embedding_size
            )
            weight_B = self._image_weights(x_BD, indices_tuple, checks)
            return self.batch_loss(x_BD, labels_B, weight_B)

    def _image_weights(
        self, x_BD: Tensor, indices_tuple: Any, checks: ValueChecks
    ) -> Tensor | None:
        """Returns the weights of the images (B) from a tuple; None without a tuple."""
        mined = check_mined(indices_tuple, len(x_BD), len(x_BD), x_BD, checks)
        checks.read()
        if mined is None:
            return None
        if self.mined_images == "none":
            name = type(self).__name__
            warnings.warn(
                f"{name} compares all images with all classes and ignores indices_tuple; "
                f"remove the miner",
                stacklevel=3,
            )
            return None
        return image_weights(mined, len(x_BD), x_BD, self.mined_images == "anchors")

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64).

        `weight_B`: weights of the images in [0, 1]; None: all 1.
        """
        raise NotImplementedError


class Pairs(NamedTuple):
    """The pairs of embeddings (B) and references (R) in a loss.

    Attributes:
        labels: classes of the embeddings.
        ref_labels: classes of the references; the tensor `labels` if they are the batch itself.
        self_index: row of each embedding in the references, −1 for an embedding that is not a
            reference; None if no embedding is. Without references it is 0..B−1.
        mined: pairs or triplets chosen by a miner; None: all pairs.
    """

    labels: Tensor
    ref_labels: Tensor
    self_index: Tensor | None = None
    mined: Mined | None = None

    def masks(self) -> tuple[Tensor, Tensor]:
        """Returns the masks of the positive and of the negative pairs in the loss (both B×R)."""
        if self.mined is None:
            return pair_masks(self.labels, self.ref_labels, self.self_index)
        return mined_masks(self.mined, len(self.labels), len(self.ref_labels))


class PairLoss(MetricLoss):
    """A loss of pairs of embeddings: within a batch, or between a batch and references.

    References (proxies of a method, a memory of past embeddings) are passed by `ref_emb`. Without
    references the batch is compared with itself. Pairs of an embedding with itself are excluded, by
    position rather than distance: pairs (i, i) of a batch, or for references the pairs in
    `self_index`. Class-wise losses include these pairs in their means, as documented there.

    Attributes:
        needs_labels: whether labels matter even where `indices_tuple` names the pairs.
    """

    needs_labels = False

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch as a scalar.

        Args:
            embeddings: B×D, finite; need not be normalized.
            labels: B integers of at least 0. None, as in pytorch-metric-learning, if
                `indices_tuple` names the pairs; not for class-wise losses.
            indices_tuple: pairs or triplets of a miner (`mined_pairs`): only these are used, each
                once. None: all pairs.
            ref_emb: R×D references, or None for the batch itself.
            ref_labels: R integers, None if and only if `ref_emb` is.
            self_index: B integers, the row of each embedding in `ref_emb`, −1 for an embedding that
                is not there. None: no reference is an embedding of the batch, or `indices_tuple`
                excludes these pairs.

        Raises:
            ValueError: an argument has the wrong shape, type or values; the message names it.
        """
        checks = ValueChecks(self)
        if labels is None:
            labels, ref_labels = self._stand_in_labels(embeddings, indices_tuple, ref_emb)
        with self.without_autocast(embeddings):
            x_BD, labels_B = check_batch(embeddings, labels, checks)
            if ref_emb is None and ref_labels is None:
                refuse_arguments(self, self_index=self_index)
                ref_RD, labels_R = x_BD, labels_B
                self_index = torch.arange(len(labels_B), device=labels_B.device)
            elif ref_emb is None or ref_labels is None:
                raise ValueError("ref_emb and ref_labels must be given together")
            else:
                names, width = ("ref_emb", "ref_labels"), embeddings.shape[1]
                ref_RD, labels_R = check_batch(
                    ref_emb, ref_labels, checks, None, width, x_BD.device, names
                )
                dtype = torch.promote_types(x_BD.dtype, ref_RD.dtype)
                x_BD, ref_RD = x_BD.to(dtype), ref_RD.to(dtype)
            if self_index is not None:
                if self_index.shape != labels_B.shape:
                    raise ValueError("self_index must hold one position for each embedding")
                self_index = self_index.to(x_BD.device)
            mined = check_mined(indices_tuple, len(x_BD), len(ref_RD), x_BD, checks)
            checks.read()
            return self.pair_loss(x_BD, ref_RD, Pairs(labels_B, labels_R, self_index, mined))

    def _stand_in_labels(
        self, embeddings: Tensor, indices_tuple: Any, ref_emb: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns labels where `indices_tuple` alone decides which pairs are in the loss.

        Raises:
            ValueError: the loss needs labels.
        """
        if indices_tuple is None or self.needs_labels:
            reason = "" if self.needs_labels else ", or indices_tuple with the pairs"
            raise ValueError(f"labels must be given{reason}")
        labels = torch.zeros(len(embeddings), dtype=torch.long, device=embeddings.device)
        if ref_emb is None:
            return labels, None
        return labels, torch.zeros(len(ref_emb), dtype=torch.long, device=ref_emb.device)

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (all float32 or all float64)."""
        raise NotImplementedError


def pair_masks(labels_B: Tensor, labels_R: Tensor, self_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the masks of positive and of negative pairs (both B×R), without self-pairs."""
    same_BR = labels_B[:, None] == labels_R
    if self_B is None:
        return same_BR, ~same_BR
    other_BR = ~self_mask(self_B, len(labels_R))
    return same_BR & other_BR, ~same_BR & other_BR


def self_mask(self_B: Tensor, references: int) -> Tensor:
    """Returns the mask of pairs of an embedding with itself (B×R), from rows in `self_B`."""
    return self_B[:, None] == torch.arange(references, device=self_B.device)


@torch.no_grad()
def loss_proxies(loss: Any) -> tuple[Tensor, Tensor] | None:
    """Returns the proxies P×D of a loss and their labels P, class by class; None: it has none.

    Every class has the same number of proxies.

    Args:
        loss: of this package or of pytorch-metric-learning.
    """
    proxies = getattr(loss, "proxies", None)
    if proxies is None:
        proxies = getattr(loss, "mean_fields", None)
    if proxies is None and hasattr(loss, "fc"):  # D×P, of PML's SoftTriple
        proxies = loss.fc.T
    if not isinstance(proxies, Tensor) or len(proxies) == 0:
        return None
    classes = torch.arange(loss.num_classes, device=proxies.device)
    proxies_per_class = len(proxies) // loss.num_classes
    return proxies.detach(), classes.repeat_interleave(proxies_per_class)
