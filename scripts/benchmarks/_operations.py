"""Operations of a training step: forward pass, backward pass and optimizer, by kind.

Each is one kernel that the host has to launch on a GPU, or a few. Views and allocations, which
launch none, are left out. Neither the batch nor the size of the images changes the numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ._training_loops import Loop

# The first kind with a word in the operation's name; BatchNorm's counters are integers.
KINDS = {
    "convolutions": ("convolution",),
    "BatchNorm": ("batch_norm",),
    "products": ("mm", "attention"),
    "optimizer": ("_fused_", "_foreach_"),
}
COUNTERS, OTHERS = "counters", "others"
COLUMNS = (*KINDS, COUNTERS, OTHERS)


def count_operations(loop: Loop) -> Counter[str]:
    """Returns the operations of a loop's second step by kind; the first one allocates."""
    size = loop.setting.size
    images = torch.randn(loop.setting.batch, 3, size, size, device=loop.device)
    labels = torch.arange(loop.setting.batch, device=loop.device) % loop.classes
    loop.train_on(images, labels)
    with _Operations() as operations:
        loop.train_on(images, labels)
    return operations.counts


class _Operations(TorchDispatchMode):
    """Counts what torch dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        touches = any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs, result)))
        if touches and "empty" not in name and not is_view(func, (args, kwargs), result):
            self.counts[_kind(name, args)] += 1
        return result


def is_view(func: Any, given: Any, result: Any) -> bool:
    """Returns True if an operation only looks at the memory of its arguments in another way."""
    if func._schema.is_mutable:
        return False
    made = _list_storages(result)
    return bool(made) and made <= _list_storages(given)


def _list_storages(tree: Any) -> set[int]:
    """Returns the addresses of the memory of all tensors."""
    storages = set()
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor):
            storages.add(leaf.untyped_storage().data_ptr())
    return storages


def _kind(name: str, args: Any) -> str:
    first = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), None)
    if name.endswith("add_") and first is not None and first.dtype == torch.long:
        return COUNTERS
    for kind, words in KINDS.items():
        if any(word in name for word in words):
            return kind
    return OTHERS
