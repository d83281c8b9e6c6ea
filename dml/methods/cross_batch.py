"""XBM: a memory of past embeddings as references (Wang et al., Cross-Batch Memory, CVPR 2020).

Shapes: B images in a batch, D embedding dimensions, N embeddings in the memory.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dml.losses.arguments import to_working_precision
from dml.methods.loss_values import LossValue, empty_logs, read_loss
from dml.methods.mining import Miner, drop_self_pairs, mine_pairs
from dml.methods.options import Count
from dml.methods.reference_losses import (
    compute_reference_loss,
    prepare_for_mined_references,
    prepare_for_references,
)
from dml.models.embedder import Embedder
from dml.training.interfaces import Method


class CrossBatchMemory(Method):
    """The loss of each batch plus the loss between the batch and a memory of embeddings.

    The memory contains the embeddings of the last steps, including the current batch, and is filled
    from the first step on. An embedding is not compared with its copy in the memory. Only the batch
    receives gradients. The memory is not used in the first `start_after` steps, in which embeddings
    change too fast.

    With a miner, the first loss has the pairs that it finds in the batch, the second those that it
    finds between the batch and the memory: the latter is `CrossBatchMemory(loss, miner=miner)` of
    pytorch-metric-learning, where pairs of an embedding and its copy are dropped after mining.

    Args:
        loss: a loss of pairs or triplets that accepts references, and with a miner its tuples.
        miner: called as `miner(embeddings, labels)` and as `miner(embeddings, labels, ref_emb,
            ref_labels)`; None: all pairs count.
        embedding_size: D.
        memory_batches: size of the memory in batches, at least 1.
        start_after: number of steps with only the loss of the batch.
        wait_until_full: count these steps from the step at which the memory is full, as in the
            code of ccp's authors.
        exclude_self_pairs: do not compare an embedding with its copy in the memory; False includes
            these pairs, as the code of ccp's authors does.

    Raises:
        UserError: the loss or the miner does not accept references.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Miner | None,
        embedding_size: int,
        memory_batches: Count = 25,
        start_after: Annotated[int, Field(ge=0)] = 1000,
        wait_until_full: bool = False,
        exclude_self_pairs: bool = True,
    ) -> None:
        super().__init__()
        if miner is None:
            self.loss = prepare_for_references(loss, None, embedding_size, "xbm")
        else:
            self.loss = prepare_for_mined_references(loss, miner, embedding_size, "xbm")
        self.miner = miner
        self.memory_batches = memory_batches
        self.start_after = start_after + (memory_batches if wait_until_full else 0)
        self.exclude_self_pairs = exclude_self_pairs
        self._steps = 0
        # created with the first batch, which determines the size
        self._embeddings: Tensor | None = None
        self._labels: Tensor | None = None

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B."""
        embeddings = embedder(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = to_working_precision(embeddings)
            read = [self._batch_loss(embeddings, labels)]
            uses_memory = self._steps >= self.start_after
            self_B = torch.full_like(labels, -1)
            if self.training:
                stored_B = self._store(embeddings.detach(), labels)
                self_B = stored_B if self.exclude_self_pairs else self_B
            if uses_memory:
                read.append(self._memory_loss(embeddings, labels, self_B))
        loss = read[0].value if len(read) == 1 else read[0].value + read[1].value
        return loss, empty_logs(*read)

    def _batch_loss(self, embeddings: Tensor, labels: Tensor) -> LossValue:
        if self.miner is None:
            returned = self.loss(embeddings, labels)
        else:
            returned = self.loss(embeddings, labels, mine_pairs(self.miner, embeddings, labels))
        return read_loss(returned, embeddings, self.loss)

    def _memory_loss(self, embeddings: Tensor, labels: Tensor, self_B: Tensor) -> LossValue:
        memory = self.memory()
        if self.miner is None:
            returned = compute_reference_loss(self.loss, embeddings, labels, memory, self_B)
        else:
            mined = mine_pairs(self.miner, embeddings, labels, memory)
            mined = drop_self_pairs(mined, self_B)
            ref_emb, ref_labels = memory
            returned = self.loss(embeddings, labels, mined, ref_emb=ref_emb, ref_labels=ref_labels)
        return read_loss(returned, embeddings, self.loss)

    def memory(self) -> tuple[Tensor, Tensor]:
        """Returns N×D embeddings and N labels of the last steps, in no particular order."""
        if self._embeddings is None or self._labels is None:
            raise RuntimeError("the memory is empty before the first training step")
        filled = min(self._steps, self.memory_batches)
        size = filled * (len(self._labels) // self.memory_batches)
        return self._embeddings[:size], self._labels[:size]

    def _store(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Replaces the oldest batch in the memory; returns the rows of the new batch in it (B)."""
        if self._embeddings is None or self._labels is None:
            self._embeddings = embeddings_BD.repeat(self.memory_batches, 1)
            self._labels = labels_B.repeat(self.memory_batches)
        elif self._embeddings.device != embeddings_BD.device:  # a checkpoint is loaded on the CPU
            self._embeddings = self._embeddings.to(embeddings_BD.device)
            self._labels = self._labels.to(embeddings_BD.device)
        size = len(labels_B)
        start = self._steps % self.memory_batches * size
        self._embeddings[start : start + size] = embeddings_BD
        self._labels[start : start + size] = labels_B
        self._steps += 1
        return torch.arange(start, start + size, device=labels_B.device)

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the memory and its position, in plain types and tensors."""
        if self._embeddings is None:
            return {"steps": self._steps, "embeddings": None, "labels": None}
        embeddings, labels = self.memory()
        # a slice would be saved with the whole tensor
        return {"steps": self._steps, "embeddings": embeddings.clone(), "labels": labels.clone()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state that `get_extra_state` returned."""
        self._steps = state["steps"]
        self._embeddings = self._labels = None
        if state["embeddings"] is not None:
            filled = min(self._steps, self.memory_batches)
            size = len(state["labels"]) // filled
            missing = (self.memory_batches - filled) * size
            self._embeddings = nn.functional.pad(state["embeddings"], (0, 0, 0, missing))
            self._labels = nn.functional.pad(state["labels"], (0, missing))
