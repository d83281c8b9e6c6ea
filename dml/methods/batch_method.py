"""What every method is: a way to turn a batch into a loss, with hooks into the training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

# (images per class, number of the draw) -> batches of augmented training images and their labels,
# class by class; the same arguments always give the same images.
SamplePool = Callable[[int, int], Iterable[tuple[Tensor, Tensor]]]


class BatchMethod(nn.Module):
    """A method without hooks: subclasses write `forward` and override what they need.

    Parameters are trained along with the loss's; everything else that decides the future belongs
    into buffers or `get_extra_state`, in plain types and tensors: a checkpoint holds both.

    Where several processes share a batch, each of them computes the loss of the whole batch: labels
    and embeddings are those of all (`dml.training.data_parallel`), images and features are not.

    Attributes:
        whole: what of the whole batch is needed beside that: "images", "features".
    """

    whole: frozenset[str] = frozenset()

    def forward(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of images B×3×H×W with labels B, and scalars to log."""
        raise NotImplementedError

    def attach(self, sample_pool: SamplePool) -> None:
        """Gives access to training images beyond the batch, once, before training or resuming."""

    def after_backward(self, embedder: nn.Module) -> None:
        """Called between backward pass and optimizer step; may change the gradients."""

    def on_evaluation(self, embedder: nn.Module, score: float) -> dict[str, float]:
        """Called after every evaluation; returns what the method adds to its row of the history."""
        return {}

    def on_stall(self, embedder: nn.Module) -> bool:
        """Called when the protocol's patience is at an end; True: go on all the same."""
        return False
