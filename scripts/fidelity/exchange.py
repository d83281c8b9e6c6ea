"""What both sides of a comparison share: files of arrays, equal parameters, gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np

Arrays = dict[str, np.ndarray]
LAMBDA = 0.3  # of all mixes


def answer(compute: Callable[[Arrays], Arrays]) -> None:
    """Reads the inputs and writes the outputs, in the two files that the command line names."""
    with np.load(sys.argv[1]) as inputs:
        np.savez(sys.argv[2], **compute(dict(inputs)))  # type: ignore[arg-type]


def names(inputs: Arrays, suffix: str = "/labels") -> list[str]:
    """Returns the names of the batches among the inputs."""
    return [key.removesuffix(suffix) for key in inputs if key.endswith(suffix)]


def numbers(key: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns parameters that depend on key and shape; a matrix and its transpose get the same."""
    if len(shape) == 2 and shape[0] > shape[1]:  # mean fields are columns in the authors' code
        return numbers(key, shape[::-1]).T
    rng, fan_in = np.random.default_rng(crc32(str(key).encode())), np.prod(shape[1:])
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(size=shape) * (2 / fan_in) ** 0.5


def fill_network(network: Any, renamed: Callable[[str], str]) -> Any:
    """Returns a torch network in evaluation mode, with numbers by the new names of its tensors."""
    for name, tensor in network.double().eval().state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(tensor.new_tensor(numbers(renamed(name), tensor.shape)))
    return network


def record(key: str, value: Any, *leaves: Any) -> Arrays:
    """Returns a torch scalar and its gradients as arrays `<key>/<number>`."""
    import torch

    gradients = torch.autograd.grad(value, leaves, materialize_grads=True)
    return {f"{key}/{i}": x.detach().numpy() for i, x in enumerate((value, *gradients))}


def evaluate(key: str, loss: Any, inputs: Arrays, *miner: Any) -> Arrays:
    """Returns value and gradients of a torch loss, after a miner if given, on every batch."""
    import torch

    outputs: Arrays = {}
    for i, parameter in enumerate(loss.parameters()):
        parameter.data = torch.tensor(numbers(i, parameter.shape))
    for kind in names(inputs):
        x = torch.from_numpy(inputs[f"{kind}/x"]).requires_grad_()
        labels = torch.from_numpy(inputs[f"{kind}/labels"])
        value = loss(x, labels, *(one(x, labels) for one in miner))
        outputs |= record(f"{key}/{kind}", value, x, *loss.parameters())
    return outputs
