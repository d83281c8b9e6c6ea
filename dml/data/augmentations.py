"""Augmentations of torchvision, or of users, after the crop and the flip of a training image."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from dml.core.errors import ConfigError, describe_failure

Augment = Callable[[Tensor], Tensor]

# Strengths as in SimCLR at half its strength; the others have torchvision's defaults.
NAMED: dict[str, Callable[[], nn.Module]] = {
    "color_jitter": lambda: v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    "rand_augment": v2.RandAugment,
    "trivial_augment": v2.TrivialAugmentWide,
    "random_erasing": v2.RandomErasing,
}


class Augmentations(nn.Module):
    """Applies augmentations to an image, one after the other.

    Meanwhile the generators of torch, NumPy and Python have seeds that torch draws, which itself
    has one for each image and epoch: the result depends on neither the number of loading processes
    nor what else draws numbers.

    Args:
        steps: by name in messages: each maps an image 3×H×W (uint8) to one of the same form.
    """

    def __init__(self, steps: Sequence[tuple[str, Augment]]) -> None:
        super().__init__()
        self.steps = list(steps)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the augmented image 3×H×W."""
        with _seeded(int(torch.randint(1 << 31, ()))):
            for _, step in self.steps:
                image = step(image)
        return image

    def check(self, size: int) -> None:
        """Tries the augmentations on an image.

        Args:
            size: its side in pixels.

        Raises:
            ConfigError: one fails, or returns another form.
        """
        image = torch.full((3, size, size), 128, dtype=torch.uint8)
        for name, step in self.steps:
            with torch.random.fork_rng(devices=[]), _seeded(0):
                try:
                    changed: Any = step(image)
                except Exception as error:  # of any class: it may be the user's
                    reason = f"it fails on an image: {describe_failure(error)}"
                    raise ConfigError([f"{name}: {reason}"]) from error
            is_image = isinstance(changed, Tensor) and changed.dtype == image.dtype
            if not is_image or changed.shape != image.shape:
                form = type(changed).__name__
                if isinstance(changed, Tensor):
                    form = f"{changed.dtype} of shape {list(changed.shape)}"
                raise ConfigError(
                    [f"{name}: must return uint8 pixels 3x{size}x{size}, returned {form}"]
                )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the generators of NumPy, Python and torch; restores the first two."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
