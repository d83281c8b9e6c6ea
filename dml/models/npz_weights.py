"""Weights of JAX in `.npz` files, as the authors of ViT and BiT publish them, read by timm."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dml.core.errors import first_line
from dml.core.npz_files import check_sizes

NPZ = ".npz"
READ_ERRORS = (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile)
# Arrays that a network without classifier does not have, and those that are resized.
CLASSIFIERS = ("head", "pre_logits")
PATCHES = "embedding/kernel"
RESIZED = ("pos_embedding", PATCHES, "pos_embed", "patch_embed.proj.weight")


def load_npz(create: Callable[[], Any], path: Path) -> Any:
    """Returns a new network with the weights of an `.npz` file, which timm's loader converts.

    The loader may leave out tensors of the network or of the file: neither is accepted here, except
    for the classifier.

    Args:
        create: makes the network, without classifier.
        path: of the file; Python objects in it are never unpickled.

    Raises:
        ValueError: the file is no `.npz` file, or of another network.
    """
    held = count_numbers(path)
    network = create()
    if not hasattr(network, "load_pretrained"):
        raise ValueError(
            f"timm reads no .npz files for {type(network).__name__}; give .safetensors or .pth"
        )
    for parameter in network.parameters():
        nn.init.constant_(parameter, torch.nan)
    try:
        network.load_pretrained(str(path))
    except KeyError as error:
        raise ValueError(f"the file lacks an array: {error.args[0]}") from error
    lacking = []
    expected = 0
    for name, parameter in network.named_parameters():
        if parameter.isnan().any():
            lacking.append(name)
        if not name.endswith(RESIZED):
            expected += parameter.numel()
    if lacking:
        raise ValueError(f"the file has nothing for {', '.join(lacking[:3])}, or NaN")
    if held != expected:
        raise ValueError(
            f"the file holds {held:,} numbers, the network {expected:,}, without classifier, first "
            f"layer and position embeddings"
        )
    return network


def count_numbers(path: Path) -> int:
    """Returns how many numbers the arrays hold that the network takes as they are.

    Raises:
        ValueError: the file is no `.npz` file, or damaged.
    """
    arrays = read_npz(path)
    patches = [name for name in arrays if name.endswith(PATCHES)]
    prefix = patches[0].removesuffix(PATCHES) if len(patches) == 1 else ""
    count = 0
    for name, array in arrays.items():
        is_of_images = name.startswith(prefix)  # not of a network of texts, or of the optimizer
        is_classifier = any(part in CLASSIFIERS for part in name.split("/"))
        if is_of_images and not is_classifier and not name.endswith(RESIZED):
            count += array.numel()
    return count


def read_npz(path: Path) -> dict[str, Tensor]:
    """Returns name → tensor of an `.npz` file of numbers; nothing is unpickled.

    Raises:
        ValueError: the file is no such file, or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            check_sizes(path, file.files)
            return {name: torch.from_numpy(file[name]) for name in file.files}
    except READ_ERRORS as error:
        raise ValueError(
            f"not an .npz file of numbers, or damaged ({first_line(error)})"
        ) from error
