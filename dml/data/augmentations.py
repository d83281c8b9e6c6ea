"""Transforms of images by torchvision or by users: augmentations after the crop and the flip of a
training image (`transform.then`), and whole transforms (`transform._target_`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from dml.core.errors import ConfigError, UserError, describe_failure
from dml.data.generators import seeded

ImageFunction = Callable[[Tensor], Tensor]
TARGET = "transform._target_"
PASSES = 4  # over one image, in search of draws that no seed decides

# Strengths as in SimCLR at half its strength; the others have torchvision's defaults.
NAMED: dict[str, Callable[[], nn.Module]] = {
    "color_jitter": lambda: v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    "rand_augment": v2.RandAugment,
    "trivial_augment": v2.TrivialAugmentWide,
    "random_erasing": v2.RandomErasing,
}


class Augmentations(nn.Module):
    """Applies augmentations to an image, one after the other.

    Meanwhile all generators have seeds that torch draws, which itself has one for each image and
    epoch: the result depends on neither the number of loading processes nor what else draws
    numbers.

    Args:
        steps: by name in messages: each maps an image 3×H×W (uint8) to one of the same form.
    """

    def __init__(self, steps: Sequence[tuple[str, ImageFunction]]) -> None:
        super().__init__()
        self.steps = list(steps)

    def forward(self, image: Tensor) -> Tensor:
        """Returns the augmented image 3×H×W."""
        with seeded(_draw_seed()):
            for name, step in self.steps:
                image = _check_tensor(step(image), name)
        return image

    def check(self, side: int) -> Iterator[str]:
        """Tries the augmentations on an image of `side`×`side` pixels.

        Yields:
            A note for each one whose results do not follow from the seed.

        Raises:
            ConfigError: one fails, or returns another form.
        """
        image = _random_image(side, side)
        for name, step in self.steps:
            changed = _try(step, image, name)
            if not _is_image(changed) or changed.shape != image.shape:
                form = _describe_form(changed)
                raise ConfigError(
                    [f"{name}: must return uint8 pixels 3x{side}x{side}, returned {form}"]
                )
            if _differs(step, image, name):
                yield describe_difference(name)


class CustomTransform(nn.Module):
    """The whole transform of a training or test image by a class of the user.

    Seeds are those of `Augmentations`; of a test image they are always the same.

    Args:
        function: maps an image 3×H×W (uint8, as decoded) to uint8 pixels 3×h×w.
        train: whether it is of training images.
    """

    def __init__(self, function: ImageFunction, train: bool) -> None:
        super().__init__()
        self.function, self.train_images = function, train

    def forward(self, image: Tensor) -> Tensor:
        """Returns the transformed image 3×h×w."""
        with seeded(_draw_seed() if self.train_images else 0):
            return _check_tensor(self.function(image), TARGET)

    def check(self, side: int | None) -> Iterator[str]:
        """Tries the transform on images of two sizes.

        Args:
            side: of the network's input in pixels; None: any.

        Yields:
            A note if results do not follow from the seed, or if test images are changed at random.

        Raises:
            ConfigError: it fails, or returns another form.
        """
        base = side or 64
        self._check_form(_random_image(base + 1, base), side)
        image = _random_image(base, 2 * base)
        self._check_form(image, side)
        if _differs(self.function, image, TARGET):
            yield describe_difference(TARGET)
        elif not self.train_images and _is_random(self.function, image):
            yield f"{TARGET}: it changes test images at random (train=False), all by equal draws"

    def _check_form(self, image: Tensor, side: int | None) -> None:
        """Raises ConfigError if what becomes of an image is none of the network's input."""
        changed = _try(self.function, image, TARGET)
        any_size = side is None
        if _is_image(changed) and (any_size or changed.shape[1:] == (side, side)):
            return
        wanted = "3xHxW" if any_size else f"3x{side}x{side}"
        raise ConfigError(
            [
                f"{TARGET}: must return uint8 pixels {wanted}, which are normalized later; "
                f"returned {_describe_form(changed)} (train={self.train_images})"
            ]
        )


def describe_difference(name: str) -> str:
    """Returns the note on a part whose results do not follow from the seed."""
    return (
        f"{name}: two passes with equal seeds differ, so that a repeated or continued run differs "
        f"too; draw from torch, numpy or random"
    )


def _check_tensor(changed: Any, name: str) -> Tensor:
    """Returns the result for an image; raises UserError if it is no tensor, as for the first."""
    if isinstance(changed, Tensor):
        return changed
    raise UserError(f"{name}: returned {_describe_form(changed)} for an image; return a tensor")


def _draw_seed() -> int:
    """Returns a seed for all generators, from that of PyTorch."""
    return int(torch.randint(1 << 31, ()))


def _random_image(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (3, height, width), generator=generator, dtype=torch.uint8)


def _try(function: ImageFunction, image: Tensor, name: str) -> Any:
    """Returns what a function makes of an image; raises ConfigError if it fails."""
    with seeded(0):
        try:
            return function(image.clone())
        except Exception as error:  # of any class: it may be the user's
            reason = f"it fails on an image: {describe_failure(error)}"
            raise ConfigError([f"{name}: {reason}"]) from error


def _is_image(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.dtype == torch.uint8
        and value.ndim == 3
        and len(value) == 3
    )


def _describe_form(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {list(value.shape)}"
    return type(value).__name__


def _differs(function: ImageFunction, image: Tensor, name: str) -> bool:
    """Returns whether passes with equal seeds give different pixels."""
    first = [_try(function, image, name) for _ in range(PASSES)]
    return any(not torch.equal(first[0], other) for other in first[1:])


def _is_random(function: ImageFunction, image: Tensor) -> bool:
    """Returns whether passes with different seeds give different pixels."""
    results = []
    for seed in range(PASSES):
        with seeded(seed):
            results.append(function(image.clone()))
    return any(not torch.equal(results[0], other) for other in results[1:])
