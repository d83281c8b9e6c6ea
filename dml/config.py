"""The config: typed nodes, every problem at once, and the digest that names a run folder.

Defaults live in the YAML files, which also explain them; the classes here say what may stand there.
Values of a loss, a method, a backbone or a reader belong to the class named by `_target_` and are
bound to its constructor when it is built.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml import search_space
from dml.errors import ConfigError, nearest


@dataclass
class DataConfig:
    """Which dataset, and how it is cut into batches."""

    name: str
    stand_in: bool
    root: str
    reader: dict[str, Any]
    label_noise: float
    sampler: str
    batch_size: int
    images_per_class: int | None
    eval_batch_size: int
    workers: int
    cache: int | str | None
    cache_device: str


@dataclass
class TransformConfig:
    """Crops and flips of `dml.data.transforms`."""

    augmentation: str
    size: int | None
    resize: int | None
    scale: list[float]
    ratio: list[float]
    flip: bool
    padding: int
    degrees: float
    test_resize: int | None


@dataclass
class OptimConfig:
    """A torch optimizer and what goes with it."""

    name: str
    _target_: str
    args: dict[str, Any]
    lr: float
    weight_decay: float
    loss_lr: float | None
    loss_lr_ratio: float | None
    groups: dict[str, Any]
    schedule: dict[str, Any] | None
    clip_value: float | None
    clip_norm: float | None
    warmup_epochs: int


@dataclass
class StoppingConfig:
    """When validation has stopped improving."""

    unit: str
    patience: int | None
    min_delta: float


@dataclass
class ProtocolConfig:
    """Which models are trained on what, for how long, and which of their epochs counts."""

    name: str
    result_id: str
    splits: str
    selected_on: str
    select_metric: str
    repeats: int
    epochs: int
    steps_per_epoch: int | None
    evaluate_every: int
    evaluate_unit: str
    stopping: StoppingConfig
    workers: int
    lookup: dict[str, Any]


@dataclass
class SearchConfig:
    """A search over the protocol's validation score."""

    name: str
    trials: int
    startup: int
    sampler: str
    pruning: bool
    storage: str | None
    lease_seconds: float


@dataclass
class Config:
    """A whole run."""

    seed: int
    device: str
    precision: str
    outputs: str
    overwrite: bool
    max_minutes: float | None
    experiment: dict[str, Any]
    data: DataConfig
    transform: TransformConfig
    backbone: dict[str, Any]
    embedder: dict[str, Any]
    optim: OptimConfig
    loss: dict[str, Any]
    method: dict[str, Any]
    protocol: ProtocolConfig
    tracking: dict[str, Any]
    search: SearchConfig | None
    space: dict[str, Any]


@dataclass
class EvaluateConfig(Config):
    """What `evaluate.py` takes beside the options of a training run."""

    run: str | None
    embeddings: str | None
    save: str | None
    recall_at: list[int] | None


C = TypeVar("C", bound=Config)

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

# Where and how fast a run is computed, not what: these do not enter the digest.
NOT_IN_DIGEST = (
    "tracking",
    "device",
    "outputs",
    "overwrite",
    "max_minutes",
    "data.root",
    "data.reader.root",
    "data.workers",
    "data.cache_device",
    "protocol.workers",
    "search.storage",
    "search.lease_seconds",
)
LOSS_KEYS = ("name", "result_id", "batch_kind", "miner")  # the rest goes to the constructor
METHOD_KEYS = ("result_id",)


def check(cfg: DictConfig, schema: type[C]) -> C:
    """The typed config of a composed one.

    Args:
        cfg: as Hydra composed it.
        schema: `Config`, or a class that adds options to it.

    Raises:
        ConfigError: with every problem, one line each, before data or GPU are touched.
    """
    problems: dict[str, str] = {}
    try:
        plain = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError([f"{error.full_key}: {str(error).splitlines()[0]}"]) from error
    config = _typed(schema, plain, "", problems)
    # An option of the wrong type is None from here on, which the checks of ranges pass over.
    for name, problem in _ranges(config):
        problems.setdefault(name, problem)
    if not problems:
        problems.update(_fits(config))
        if config.search is not None:
            problems.update(search_space.problems(config.space, _flat(plain)))
    if problems:
        raise ConfigError(f"{name}: {problem}" for name, problem in problems.items())
    return config


def notes(config: Config) -> Iterator[str]:
    """What is allowed but worth knowing before a number is compared."""
    side, t = config.data.cache, config.transform
    if isinstance(side, int) and t.resize != side:
        yield (
            f"data.cache={side} keeps small images, so training crops differ from those of the "
            f"protocol, which cuts them from images "
            f"{'as decoded' if t.resize is None else f'resized to {t.resize}'}"
        )
    if isinstance(side, int) and t.test_resize is not None and t.test_resize > side:
        yield f"data.cache={side} is smaller than transform.test_resize={t.test_resize}"


def identity(cfg: DictConfig) -> dict[str, Any]:
    """Everything that decides the result, as dotted name → plain value, sorted by name."""
    flat = _flat(OmegaConf.to_container(cfg, resolve=True))
    unused = () if cfg.get("search") else ("space",)
    left_out = tuple(f"{name}." for name in (*NOT_IN_DIGEST, *unused))
    return {name: flat[name] for name in sorted(flat) if not f"{name}.".startswith(left_out)}


def _flat(node: Any, path: str = "") -> dict[str, Any]:
    if not (isinstance(node, dict) and node):
        return {path: node}
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(_flat(value, f"{path}.{key}" if path else str(key)))
    return flat


def digest(cfg: DictConfig) -> str:
    """Eight hex digits that depend on everything that decides the result."""
    return hashlib.sha256(json.dumps(identity(cfg)).encode()).hexdigest()[:8]


def arguments(node: dict[str, Any], *reserved: str) -> dict[str, Any]:
    """The node without the keys that are about it rather than for its constructor."""
    return {key: value for key, value in node.items() if key not in (*reserved, "name")}


def _typed(schema: type, node: Any, path: str, problems: dict[str, str]) -> Any:
    """An instance of `schema` with the node's values, each converted to its declared type."""
    hints = get_type_hints(schema)
    values: dict[str, Any] = {}
    for name, kind in hints.items():
        dotted = f"{path}{name}"
        value = node.get(name) if isinstance(node, dict) else None
        if kind == SearchConfig | None:
            kind = None if isinstance(node, dict) and value is None else SearchConfig
        if kind is None:
            values[name] = None
            continue
        if is_dataclass(kind):
            values[name] = _typed(cast(type, kind), value, f"{dotted}.", problems)
            continue
        try:
            if not isinstance(node, dict) or name not in node:
                values[name] = None
                problems[dotted] = "missing; give it a value"
            else:
                values[name] = _converted(value, kind)
        except OmegaConfBaseException as error:
            values[name] = None
            problems[dotted] = str(error).splitlines()[0]
    for key in node if isinstance(node, dict) else ():
        if key not in hints:
            valid = [f"{path}{name}" for name in hints]
            problems[f"{path}{key}"] = f"no such option{nearest(f'{path}{key}', valid)}"
    return schema(**values)


def _converted(value: Any, kind: Any) -> Any:
    """`value` as `kind` by OmegaConf's rules: "3" becomes the integer 3, 3.5 is refused."""
    holder = OmegaConf.structured(make_dataclass("Holder", [("value", kind, MISSING)]))
    holder.value = value
    return cast(dict[str, Any], OmegaConf.to_container(holder, throw_on_missing=True))["value"]


def _ranges(config: Config) -> Iterator[tuple[str, str]]:
    """Numbers out of range, names that do not exist, a device that is not there."""
    data, optim, protocol = config.data, config.optim, config.protocol
    transform, stopping = config.transform, config.protocol.stopping
    at_least: dict[str, tuple[float | None, float]] = {
        "seed": (config.seed, 0),
        "data.batch_size": (data.batch_size, 1),
        "data.eval_batch_size": (data.eval_batch_size, 1),
        "data.images_per_class": (data.images_per_class, 1),
        "data.workers": (data.workers, 0),
        "protocol.repeats": (protocol.repeats, 1),
        "protocol.epochs": (protocol.epochs, 1),
        "protocol.steps_per_epoch": (protocol.steps_per_epoch, 1),
        "protocol.evaluate_every": (protocol.evaluate_every, 1),
        "protocol.workers": (protocol.workers, 1),
        "protocol.stopping.patience": (stopping.patience, 1),
        "protocol.stopping.min_delta": (stopping.min_delta, 0),
        "optim.lr": (optim.lr, 0),
        "optim.loss_lr": (optim.loss_lr, 0),
        "optim.loss_lr_ratio": (optim.loss_lr_ratio, 0),
        "optim.weight_decay": (optim.weight_decay, 0),
        "optim.warmup_epochs": (optim.warmup_epochs, 0),
        "transform.size": (transform.size, 1),
        "transform.resize": (transform.resize, 1),
        "transform.test_resize": (transform.test_resize, 1),
        "transform.padding": (transform.padding, 0),
        "transform.degrees": (transform.degrees, 0),
    }
    for name, (number, low) in at_least.items():
        if number is not None and not low <= number < math.inf:
            yield name, f"{number} must be a number, at least {low}"
    for name, positive in (
        ("optim.clip_value", optim.clip_value),
        ("optim.clip_norm", optim.clip_norm),
        ("max_minutes", config.max_minutes),
    ):
        if positive is not None and not 0 < positive < math.inf:
            yield name, f"{positive} must be a number greater than 0; null switches it off"
    one_of: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "precision": (config.precision, ("fp32", "bf16")),
        "data.sampler": (data.sampler, ("random", "class_stream", "balanced")),
        "transform.augmentation": (
            transform.augmentation,
            ("random_resized_crop", "random_affine", "random_crop", "none"),
        ),
        "protocol.splits": (protocol.splits, ("published", "mlrc", "ccp", "holdout")),
        "protocol.evaluate_unit": (protocol.evaluate_unit, ("epochs", "steps")),
        "protocol.selected_on": (protocol.selected_on, ("test", "validation")),
        "protocol.stopping.unit": (stopping.unit, ("evaluations", "epochs")),
    }
    if config.loss is not None:
        kinds = ("pair", "classification")
        one_of["loss.batch_kind"] = (config.loss.get("batch_kind", ""), kinds)
    if isinstance(config, EvaluateConfig):
        one_of["save"] = (config.save, ("float16", "float32"))
        for number in config.recall_at or ():
            if number < 1:
                yield "recall_at", f"{number} must be at least 1"
        if config.run is not None and config.embeddings is not None:
            yield "embeddings", "goes without run: the file holds what a network gave"
    for name, (word, valid) in one_of.items():
        if word is not None and word not in valid:
            yield name, f"no '{word}'{nearest(word, valid)}; one of {' | '.join(valid)}"
    if data.label_noise is not None and not 0 <= data.label_noise < 1:
        yield "data.label_noise", f"{data.label_noise} is no share of images, at least 0, below 1"
    if data.cache not in (None, "full") and not (isinstance(data.cache, int) and data.cache > 0):
        yield "data.cache", f"'{data.cache}' is neither null, full nor a number of pixels"
    for name, device in (("device", config.device), ("data.cache_device", data.cache_device)):
        if device is not None:
            yield from _device(name, device)


def _search_ranges(search: SearchConfig) -> Iterator[tuple[str, str]]:
    for name, number in (("trials", search.trials), ("startup", search.startup)):
        if number is not None and number < 1:
            yield f"search.{name}", f"{number} must be at least 1"
    if search.lease_seconds is not None and not 1 <= search.lease_seconds < math.inf:
        yield "search.lease_seconds", f"{search.lease_seconds} must be a number, at least 1"
    samplers = ("gp", "tpe")
    if search.sampler is not None and search.sampler not in samplers:
        hint = nearest(search.sampler, samplers)
        yield "search.sampler", f"no '{search.sampler}'{hint}; one of {' | '.join(samplers)}"


def _fits(config: Config) -> Iterator[tuple[str, str]]:
    """Values that are fine alone but not together."""
    batch, m, sampler = config.data.batch_size, config.data.images_per_class, config.data.sampler
    if sampler != "random" and m is None:
        yield "data.images_per_class", f"sampler '{sampler}' needs a number"
    elif sampler != "random" and m is not None and batch % m:
        near = [str(size) for size in (batch // m * m, (batch // m + 1) * m) if size]
        yield (
            "data.batch_size",
            f"batch {batch} must be a multiple of {m} images per class (nearest {', '.join(near)})",
        )
    elif sampler != "random" and m == 1 and config.loss["batch_kind"] == "pair":
        yield (
            "data.images_per_class",
            f"loss '{config.loss.get('name')}' compares pairs of one class and 1 image per class "
            f"leaves none; use 2 or more",
        )
    protocol = config.protocol
    if config.search is not None and protocol.selected_on == "test":
        yield (
            "search",
            f"protocol '{protocol.name}' has no validation data to search on, only test data; "
            f"use protocol=mlrc, mlrc_ccp or holdout",
        )
    if (protocol.splits == "published") != (protocol.selected_on == "test"):
        right = "test" if protocol.splits == "published" else "validation"
        yield (
            "protocol.selected_on",
            f"splits '{protocol.splits}' pick the epoch on {right}, not on {protocol.selected_on}",
        )
    if (
        config.transform.augmentation == "random_resized_crop"
        and config.transform.size is None
        and config.backbone.get("input_size", 0) is None
    ):
        yield (
            "transform.size",
            f"backbone '{config.backbone.get('name')}' takes images of any size; "
            f"say which, for example transform.size=64",
        )


def _device(name: str, device: str) -> Iterator[tuple[str, str]]:
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not number.isdigit()):
        yield name, f"no '{device}'; one of auto | cpu | cuda | cuda:<n>"
    elif kind == "cuda":
        import torch  # only here: config errors must not wait for torch to load

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            yield name, f"{device} asked for, but this machine has none; use {name}=cpu"
        elif int(number or 0) >= count:
            yield name, f"{device} asked for, but the last of {count} is cuda:{count - 1}"
