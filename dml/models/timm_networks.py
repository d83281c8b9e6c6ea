"""Networks of timm: their records, their features, and weights loaded by timm's own converters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from dml.core.errors import ConfigError, UserError, first_line
from dml.core.timm_records import find_record
from dml.models.hub import HUB_FILE
from dml.models.state_dict import read_state_dict, rename_efficientnet
from dml.models.weights import PublishedWeights, find_weights, named_checksum

KINDS: dict[int, Literal["maps", "tokens", "vectors"]] = {2: "vectors", 3: "tokens", 4: "maps"}


@dataclass(frozen=True)
class NetworkOutput:
    """The features of a network, found by a trial on one image.

    Attributes:
        kind: see `Backbone`.
        channels: c of the features.
        native_channels: c of timm's output before the classifier; None if there is none.
        channels_last: maps come as B×h×w×c.
    """

    kind: Literal["maps", "tokens", "vectors"]
    channels: int
    native_channels: int | None
    channels_last: bool


@cache
def inspect_network(model: str, input_size: int) -> NetworkOutput:
    """Returns the shape of a network's features, found without weights or memory for them.

    Raises:
        ConfigError: timm has no such network, the images do not fit, or the features can be neither
            pooled nor used as they are.
    """
    record = find_record(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            with torch.device("meta"):
                return _try_network(model, record, input_size)
        except NotImplementedError:  # an operation that meta tensors lack
            return _try_network(model, record, input_size)


def _try_network(model: str, record: dict[str, Any], input_size: int) -> NetworkOutput:
    network = _create(model, record, input_size).eval()
    try:
        features = network.forward_features(torch.zeros(1, 3, input_size, input_size))
    except NotImplementedError:
        raise
    except Exception as error:  # of any class
        raise ConfigError([_describe_misfit(model, input_size, error)]) from error
    if not isinstance(features, Tensor) or features.ndim not in KINDS:
        is_tensor = isinstance(features, Tensor)
        found = "x".join(map(str, features.shape)) if is_tensor else f"a {type(features).__name__}"
        raise ConfigError(
            [
                f"backbone.model={model}: the features of an image are {found}; expected one "
                "tensor of maps (1xcxhxw), tokens (1xtokensxc) or a vector (1xc)"
            ]
        )
    channels_last = features.ndim == 4 and getattr(network, "output_fmt", "NCHW") == "NHWC"
    return NetworkOutput(
        kind=KINDS[features.ndim],
        channels=features.shape[1 if features.ndim == 4 and not channels_last else -1],
        native_channels=_find_native_channels(network, features),
        channels_last=channels_last,
    )


def _find_native_channels(network: Any, features: Tensor) -> int | None:
    try:
        pooled = network.forward_head(features, pre_logits=True)
    except NotImplementedError:
        raise
    except Exception:  # of any class: the network has no such head
        return None
    return pooled.shape[1] if isinstance(pooled, Tensor) and pooled.ndim == 2 else None


def _create(model: str, record: dict[str, Any], input_size: int, **options: Any) -> Any:
    """Creates a network without classifier."""
    import timm

    if input_size < 1:
        raise ConfigError([f"backbone.input_size: {input_size} must be at least 1"])
    size: dict[str, Any] = {"img_size": input_size} if record["fixed_input_size"] else {}
    try:
        network: Any = timm.create_model(model, num_classes=0, **size, **options)
    except (AssertionError, ValueError) as error:
        raise ConfigError([_describe_misfit(model, input_size, error)]) from error
    patch = getattr(getattr(network, "patch_embed", None), "patch_size", 1)
    patch = patch if isinstance(patch, int) else patch[0]
    if input_size % patch:
        raise ConfigError(
            [
                f"backbone.input_size={input_size} must be a multiple of the {patch} pixels "
                f"of {model}'s patches"
            ]
        )
    return network


def _describe_misfit(model: str, input_size: int, error: Exception) -> str:
    return (
        f"backbone.input_size={input_size} does not fit {model}: {first_line(error)}; "
        "leave it out for the size of timm's record"
    )


def load_network(model: str, input_size: int, weights: str | None) -> Any:
    """Returns a network without classifier, with the weights of the option `backbone.weights`.

    timm converts the names of published files, drops the classifier and resizes position
    embeddings; the file itself is read here, without unpickling code.

    Raises:
        UserError: the weights cannot be loaded or belong to another network.
    """
    record = find_record(model)
    if weights is None or weights == "none":
        return _create(model, record, input_size)
    path = find_weights(weights, find_published_weights(model, record))
    state = rename_efficientnet(
        read_state_dict(path), lambda: _list_names(model, record, input_size)
    )
    overlay = {"state_dict": state, "custom_load": False}
    options = {"pretrained": True, "pretrained_cfg_overlay": overlay}
    with _record_differences() as differences:
        try:
            network = _create(model, record, input_size, **options)
            problem = ""
        except Exception as error:  # of any class: timm's converters expect their own files
            network, problem = None, _last_line(error)
    if differences and differences[-1].missing_keys:
        problem = f"it lacks {differences[-1].missing_keys[0]}"
    elif network is not None and weights != "imagenet":  # published files may hold more
        unknown = _drop_heads(differences[-1].unexpected_keys, record["classifier"])
        problem = f"this one has no {unknown[0]}" if unknown else ""
    if problem:
        raise UserError(f"backbone.weights: {path} belongs to another network: {problem}")
    network.pretrained_cfg["state_dict"] = None  # else kept, and copied with the network
    return network


def _list_names(model: str, record: dict[str, Any], input_size: int) -> list[str]:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return list(_create(model, record, input_size).state_dict())


def _last_line(error: Exception) -> str:
    """The mismatch that torch lists first below its heading, or the only line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return lines[1] if len(lines) > 1 else lines[0] if lines else type(error).__name__


def _drop_heads(names: Iterable[str], classifier: str | tuple[str, ...] | None) -> list[str]:
    """Returns the names outside the classifiers' modules: `head.bn` belongs to `head.linear`."""
    heads = [classifier] if isinstance(classifier, str) else list(classifier or ())
    tops = tuple(f"{head.partition('.')[0]}." for head in heads)
    return [name for name in names if not name.startswith(tops)]


@contextmanager
def _record_differences() -> Iterator[list[Any]]:
    """Collects the missing and unexpected names of the state dict that timm loads.

    timm does not return them. Every module of the network gets a hook, since the network itself
    does not exist yet; all hooks of one `load_state_dict` share the same lists.
    """
    differences: list[Any] = []
    handles = []
    log = logging.getLogger("timm")  # it warns of the classifier, which is left out on purpose
    level = log.level

    def watch(module: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is not None:
            hook = child.register_load_state_dict_post_hook(
                lambda loaded, keys: differences.append(keys)
            )
            handles.append(hook)

    log.setLevel(logging.ERROR)
    try:
        with register_module_module_registration_hook(watch):
            yield differences
    finally:
        log.setLevel(level)
        for handle in handles:
            handle.remove()


def find_published_weights(model: str, record: dict[str, Any]) -> PublishedWeights | None:
    """Returns the weights in timm's record; a file with its hash in the name is preferred."""
    url, hub = record.get("url"), record.get("hf_hub_id")
    if url and (named_checksum(url) or not hub) and not url.endswith(".npz"):
        return PublishedWeights(file=url.rsplit("/", 1)[-1], url=url)
    if not hub:
        return None
    if "." not in model and record.get("tag"):  # another default tag must not find this file
        model = f"{model}.{record['tag']}"
    return PublishedWeights(file=f"{model}{Path(HUB_FILE).suffix}", hub=hub)
