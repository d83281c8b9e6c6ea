"""Images of a batch grouped by class, and class means in log space.

Shapes: B images, P slots for present classes, K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_OF_ZERO = -1e4  # replaces log 0 in empty slots: its exp is 0, and differences are finite


@dataclass(frozen=True)
class ClassGroups:
    """Images of a batch grouped by class, with one slot per present class.

    On the CPU the number of slots is the number of present classes. On a GPU, and inside
    `torch.compile`, there are B slots, some of them empty: counting the classes would wait for the
    device.
    """

    slot: Tensor  # B: the slot of each image
    label: Tensor  # P: the class of each slot, 0 in empty ones
    count: Tensor  # P: images in each slot, 0 in empty ones
    present: Tensor  # number of present classes, a scalar

    @property
    def occupied(self) -> Tensor:
        """Mask of the slots with a class (P)."""
        return self.count > 0

    @property
    def share(self) -> Tensor:
        """Weights for a mean of class means: 1 / (present classes × images of the class) (B)."""
        return 1 / (self.present * self.count[self.slot])


def group_by_class(labels_B: Tensor, dtype: torch.dtype) -> ClassGroups:
    """Returns a batch grouped by label; counts have the floating-point type `dtype`."""
    if not labels_B.is_cuda and not torch.compiler.is_compiling():
        label_P, slot_B, images_P = labels_B.unique(return_inverse=True, return_counts=True)
        count_P = images_P.to(dtype)
        return ClassGroups(slot_B, label_P, count_P, count_P.new_tensor(len(label_P)))
    sorted_B, order_B = labels_B.sort()
    starts_B = torch.ones_like(sorted_B)
    starts_B[1:] = sorted_B[1:] != sorted_B[:-1]
    slot_B = torch.empty_like(sorted_B).scatter_(0, order_B, starts_B.cumsum(0) - 1)
    ones_B = torch.ones_like(labels_B, dtype=dtype)
    return ClassGroups(
        slot=slot_B,
        label=torch.zeros_like(labels_B).scatter_(0, slot_B, labels_B),
        count=torch.zeros_like(ones_B).index_add_(0, slot_B, ones_B),
        present=starts_B.sum().to(dtype),
    )


def log_mean_exp(e_BK: Tensor, groups: ClassGroups) -> Tensor:
    """Returns log mean exp(e) over the images of each class (P×K), without overflow.

    The result is `LOG_OF_ZERO` for empty slots.
    """
    shape = (len(groups.count), e_BK.shape[1])
    slot_BK = groups.slot[:, None].expand_as(e_BK)
    max_PK = e_BK.new_full(shape, LOG_OF_ZERO)
    max_PK.scatter_reduce_(0, slot_BK, e_BK.detach(), "amax", include_self=False)
    z_BK = (e_BK - max_PK[groups.slot]).exp()
    sum_PK = e_BK.new_zeros(shape).index_add(0, groups.slot, z_BK)
    empty_P1 = (groups.count == 0)[:, None]
    # log 1 in empty slots
    return max_PK + ((sum_PK + empty_P1) / groups.count.clamp_min(1)[:, None]).log()


def softplus(x: Tensor) -> Tensor:
    """Returns log(1 + exp(x)), exact to rounding in float64 (torch's threshold is 20)."""
    return torch.nn.functional.softplus(x, threshold=40)
