"""State dicts: reading them from files, and loading them strictly into a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from dml.core.errors import UserError

PART = "backbone."


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Reads the tensors by name from a `.safetensors` file or one that `torch.save` wrote.

    Looks inside `state_dict` or `model` and removes the prefix `module.` of data parallelism. Of a
    whole embedder, such as `model.safetensors` of `dml.export`, the backbone is returned. Only
    tensors are unpickled.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # every format fails in its own ways
        raise UserError(
            f"backbone.weights: {path} cannot be read: damaged, or neither a state dict of "
            "torch.save nor .safetensors"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    named: Mapping[str, object] = content if isinstance(content, Mapping) else {}
    state = {n.removeprefix("module."): v for n, v in named.items() if isinstance(v, Tensor)}
    if not state:
        raise UserError(f"backbone.weights: {path} contains no state dict")
    backbone = {n.removeprefix(PART): v for n, v in state.items() if n.startswith(PART)}
    return backbone or state


def load_strictly(network: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Loads `state` strictly; raises a UserError that names the first difference."""
    own = network.state_dict()
    # Vectors of a network converted from Caffe can be 1×n.
    fitting = {
        name: value[0] if name in own and value.shape == (1, *own[name].shape) else value
        for name, value in state.items()
    }
    difference = next(_differences(own, fitting), None)
    if difference is not None:
        raise UserError(f"backbone.weights: {path} belongs to another network: {difference}")
    network.load_state_dict(fitting)


def rename_efficientnet(
    state: dict[str, Tensor], names: Callable[[], Sequence[str]]
) -> dict[str, Tensor]:
    """Gives the tensors of `efficientnet_pytorch` and packages derived from it timm's names.

    They list the same tensors in the same order. The classifier is left out; any other state dict
    is returned as it is.

    Args:
        state: the tensors of a file.
        names: called for timm's names, without classifier.
    """
    if "_conv_stem.weight" not in state:
        return state
    features = [tensor for name, tensor in state.items() if not name.startswith("_fc.")]
    wanted = names()
    return dict(zip(wanted, features, strict=True)) if len(wanted) == len(features) else state


def _differences(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Iterator[str]:
    for name, value in own.items():
        if name not in state:
            if not name.endswith("num_batches_tracked"):  # newer than many published weights
                yield f"it lacks {name}"
        elif state[name].shape != value.shape:
            yield f"{name} is {_shape(state[name])} instead of {_shape(value)}"
    for name in state:
        if name not in own:
            yield f"this one has no {name}"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
