"""LoRA: adapters of low rank in the linear layers of a network of timm, by peft.

A layer x ↦ Wx becomes x ↦ Wx + alpha / rank · BAx, of which A (rank×inputs) and B (outputs×rank,
0 at first) are trained, and W is not [Hu et al., LoRA, ICLR 2022, section 4.1].

The state of such a network holds its adapters and its head, and a hash of the other weights, which
are read from their file again. Random weights have no file: their state is complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, UserError, nearest
from dml.models.embedder import Embedder
from dml.models.freezing import find_frozen, list_block_parameters

ALL = "all"  # value of `targets`
BASE_HASH = "base_hash"  # entry of the state
PARTS = re.compile(r"\.(base_layer|lora_[AB])\b")  # of a layer with an adapter


class OtherWeightsError(UserError):
    """Adapters are to be loaded on other weights than those that they were trained on."""

    def __init__(self) -> None:
        super().__init__(
            "the adapters belong to other weights than backbone.weights has now; put the file of "
            "the training back"
        )


def add_adapters(
    embedder: Embedder,
    rank: int = 8,
    alpha: float = 16.0,
    targets: Literal["all"] | Collection[str] = ALL,
    has_file: bool = True,
) -> None:
    """Adds adapters to a network in place, and freezes all else of its backbone.

    Args:
        embedder: the network, on the CPU, with the weights that stay.
        rank: of each adapter, at least 1.
        alpha: an adapter counts alpha / rank times.
        targets: names of linear layers, in full or their last parts, such as "qkv" or "mlp.fc1"; or
            "all" linear layers of the blocks.
        has_file: whether the weights that stay can be read again; else the state includes them.

    Raises:
        ConfigError: the backbone is none of timm, or has no such linear layers.
        UserError: peft is not installed.
    """
    layers = _choose_layers(embedder, targets)
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError(f"backbone.train: lora needs peft ({error}): pip install peft") from error
    base_hash = _hash_weights(embedder.backbone, layers)
    options: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "target_modules": layers}
    inject_adapter_in_model(LoraConfig(**options), embedder.backbone)
    embedder.keep_in_evaluation_mode(find_frozen(embedder.backbone))
    if has_file:
        _leave_out_of_state(embedder, base_hash)


def _choose_layers(embedder: Embedder, targets: Literal["all"] | Collection[str]) -> list[str]:
    """Returns the layers of the backbone that get an adapter; see `add_adapters`.

    An adapter works only in a layer that is called: attention of BEiT and EVA reads the weights of
    `qkv` instead.
    """
    of_blocks = _list_block_layers(embedder.backbone)
    network = type(embedder.backbone.network).__name__
    if not of_blocks:
        raise ConfigError(
            [
                f"backbone.train: lora needs linear layers, and the blocks of {network} have none; "
                f"use all, none or a number of blocks"
            ]
        )
    chosen = of_blocks
    if targets != ALL:
        chosen = _match(targets, embedder.backbone, of_blocks)
    called = _find_called(embedder, chosen)
    left_out = [name for name in chosen if name not in called]
    if left_out and targets != ALL:
        raise ConfigError(
            [
                f"backbone.lora.targets: {network} does not call the layer {_list_kinds(left_out)} "
                f"(it may read its weights), so that an adapter would do nothing; leave it out"
            ]
        )
    return [name for name in chosen if name in called]


def _list_linear(backbone: nn.Module) -> list[str]:
    """Returns the names of the linear layers of a network."""
    return [name for name, layer in backbone.named_modules() if isinstance(layer, nn.Linear)]


def _list_block_layers(backbone: nn.Module) -> list[str]:
    """Returns the names of the linear layers in the blocks of a network of timm."""
    in_blocks = list_block_parameters(backbone)
    return [name for name in _list_linear(backbone) if f"{name}.weight" in in_blocks]


def _match(targets: Collection[str], backbone: nn.Module, of_blocks: list[str]) -> list[str]:
    """Returns the linear layers whose names are, or end with, one of `targets`."""
    linear, network = _list_linear(backbone), type(backbone.network).__name__
    matched = []
    for target in targets:
        names = [name for name in linear if f".{name}".endswith(f".{target}")]
        if not names:
            kinds = _list_kinds(of_blocks)
            hint = nearest(target, kinds.split(", ")) or f"; its blocks have {kinds}"
            problem = f"{network} has no linear layer '{target}'{hint}"
            raise ConfigError([f"backbone.lora.targets: {problem}"])
        matched += names
    return list(dict.fromkeys(matched))


def describe_adapters(embedder: Embedder, targets: Literal["all"] | Collection[str] = ALL) -> str:
    """Returns `adapters in 24 linear layers: fc1, fc2; none in qkv, which are not called`.

    Args:
        embedder: with adapters.
        targets: those of `add_adapters`.
    """
    layers = [name for name, layer in embedder.named_modules() if hasattr(layer, "lora_A")]
    text = f"adapters in {len(layers)} linear layers: {_list_kinds(layers)}"
    plain = []
    for name in _list_block_layers(embedder.backbone):
        if not PARTS.search(name):
            plain.append(name)
    if targets == ALL and plain:
        text += f"; none in {_list_kinds(plain)}, which the network does not call as layers"
    return text


def _list_kinds(names: list[str]) -> str:
    """Returns the last parts of the names of layers, each once: `qkv, proj`."""
    return ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in names))


@torch.no_grad()
def _find_called(embedder: Embedder, names: list[str]) -> set[str]:
    """Returns the layers of the backbone that are called for an image of zeros."""
    layers = {embedder.backbone.get_submodule(name): name for name in names}
    called: set[str] = set()

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        called.add(layers[layer])

    handles = [layer.register_forward_hook(note) for layer in layers]
    training, side = embedder.training, embedder.input.size or 224
    embedder.eval()(torch.zeros(1, 3, side, side))
    embedder.train(training)
    for handle in handles:
        handle.remove()
    return called


def _hash_weights(backbone: nn.Module, layers: Collection[str]) -> Tensor:
    """Returns the SHA-256 of the weights of layers, 32 bytes.

    Position embeddings are left out: where they are resized, processors round differently.
    """
    digest = hashlib.sha256()
    for name in layers:
        weight = backbone.get_parameter(f"{name}.weight").detach().contiguous()
        digest.update(weight.view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _leave_out_of_state(embedder: Embedder, base_hash: Tensor) -> None:
    """Lets the state of a network hold what is trained, and the hash of the rest."""
    trained = {name for name, p in embedder.named_parameters() if p.requires_grad}
    names = {name for name in embedder.state_dict() if name.startswith("backbone.")}
    embedder.fixed = frozenset(names - trained)

    def leave_out(module: Embedder, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        if not module.fixed:  # the adapters are merged
            return
        for name in module.fixed:
            del state[prefix + name]
        state[prefix + BASE_HASH] = base_hash

    def fill_in(module: Embedder, state: dict[str, Any], prefix: str, *others: Any) -> None:
        stored = state.pop(prefix + BASE_HASH, None)
        if stored is None or not torch.equal(stored.cpu(), base_hash):
            raise OtherWeightsError
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        for name in module.fixed:
            state[prefix + name] = tensors[name]

    embedder.register_state_dict_post_hook(leave_out)
    embedder.register_load_state_dict_pre_hook(fill_in)


def merge_adapters(embedder: Embedder) -> None:
    """Adds the adapters of a network to the weights of their layers, in place.

    It is then an ordinary network, with the same embeddings up to rounding and a complete state.
    One without adapters stays as it is.
    """
    layers = {name: layer for name, layer in embedder.named_modules() if hasattr(layer, "lora_A")}
    for name, layer in layers.items():
        merged: Any = layer
        merged.merge()
        embedder.set_submodule(name, merged.get_base_layer())
    embedder.fixed = frozenset()
