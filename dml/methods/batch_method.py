"""Base class of the methods: a batch becomes a loss, with hooks into the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

# (images per class, index of the draw) -> batches of augmented training images and their labels,
# class by class; equal arguments give equal images.
SamplePool = Callable[[int, int], Iterable[tuple[Tensor, Tensor]]]


class BatchMethod(nn.Module):
    """A method without hooks; subclasses implement `forward` and override the hooks they need.

    Parameters are trained with those of the loss. All other state that training depends on belongs
    into buffers or `get_extra_state`, in plain types and tensors: checkpoints hold both.

    Where several processes share a batch, each of them computes the loss of the whole batch: labels
    and embeddings are those of all (`dml.training.data_parallel`), images and features are not.

    Attributes:
        whole: what else of the whole batch is needed: "images", "features".
        loss_constant: a part of the loss that training cannot change. The history has the loss
            without it too, because changes of a small rest are hard to see beside it.
    """

    whole: frozenset[str] = frozenset()
    loss_constant: float = 0.0

    def forward(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B, and scalars to log."""
        raise NotImplementedError

    def attach(self, sample_pool: SamplePool) -> None:
        """Receives access to all training images, once, before training or resuming."""

    def after_backward(self, embedder: nn.Module) -> None:
        """Called between backward pass and optimizer step; may change the gradients."""

    def on_evaluation(self, embedder: nn.Module, score: float) -> dict[str, float]:
        """Called after every evaluation; returns columns for its row of the history."""
        return {}

    def on_stall(self, embedder: nn.Module) -> bool:
        """Called when the patience of the protocol is exhausted; True: continue training."""
        return False
