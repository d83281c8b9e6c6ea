"""What is wrong with a config whose types are right: numbers out of range, names that are none."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dml.config.schema import Config, EvaluateConfig, SearchConfig, shown
from dml.core.errors import nearest

MEASURES = (  # computed by `dml.runs.scores.extra_metrics`; `positivity` is a picture
    "regularizer",
    "w2",
    "covering_radius",
    "inter_class_distance",
    "alignment",
    "uniformity",
    "utilization",
    "positivity",
)
# Beyond any use: a slip of the keyboard must not fill the machine, or hang before the first step.
MOST_WORKERS = 1024
MOST_REPEATS = 1000
MOST_IMAGES = 1_000_000  # of a batch
MOST_PIXELS = 16_384  # of a side


def ranges(config: Config) -> Iterator[tuple[str, str]]:
    """Numbers out of range, names that do not exist, a device that is not there."""
    yield from names(config)
    yield from _limits(config)
    data, optim, protocol = config.data, config.optim, config.protocol
    transform, stopping = config.transform, config.protocol.stopping
    for name, positive in (
        ("optim.clip_value", optim.clip_value),
        ("optim.clip_norm", optim.clip_norm),
        ("max_minutes", config.max_minutes),
    ):
        if positive is not None and not 0 < positive < math.inf:
            yield name, f"{positive} must be a number greater than 0; null switches it off"
    for name, pair in (("transform.scale", transform.scale), ("transform.ratio", transform.ratio)):
        if pair is not None and not (len(pair) == 2 and 0 < pair[0] <= pair[1] < math.inf):
            yield name, f"{pair} must be two numbers above 0, the smaller one first"
    metric = protocol.select_metric
    if metric is not None and not re.fullmatch(
        r"map_at_r|r_precision|(precision|recall)_at_\d+", metric
    ):
        yield (
            "protocol.select_metric",
            f"no '{metric}'; one of map_at_r | r_precision | precision_at_1 | recall_at_<K>",
        )
    one_of: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "data.identified_by": (data.identified_by, ("place", "name")),
        "data.query_gallery": (data.query_gallery, ("split", "none")),
        "precision": (config.precision, ("fp32", "tf32", "bf16")),
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
    for number, measure in enumerate(config.evaluation.measures or ()):
        one_of[f"evaluation.measures[{number}]"] = (measure, MEASURES)
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
    yield from groups(config)
    if config.search is not None:
        yield from _search_ranges(config.search)
    for name, device in (("device", config.device), ("data.cache_device", data.cache_device)):
        if device is not None:
            yield from _device(name, device)


def _limits(config: Config) -> Iterator[tuple[str, str]]:
    """Numbers that are too small, too large, or none."""
    data, optim, protocol = config.data, config.optim, config.protocol
    transform, stopping = config.transform, config.protocol.stopping
    limits: dict[str, tuple[float | None, float, float]] = {
        "seed": (config.seed, 0, math.inf),
        "data.batch_size": (data.batch_size, 1, MOST_IMAGES),
        "data.eval_batch_size": (data.eval_batch_size, 1, math.inf),
        "data.images_per_class": (data.images_per_class, 1, MOST_IMAGES),
        "data.workers": (data.workers, 0, MOST_WORKERS),
        "protocol.repeats": (protocol.repeats, 1, MOST_REPEATS),
        "protocol.epochs": (protocol.epochs, 0, math.inf),
        "protocol.steps_per_epoch": (protocol.steps_per_epoch, 1, math.inf),
        "protocol.evaluate_every": (protocol.evaluate_every, 1, math.inf),
        "protocol.workers": (protocol.workers, 1, MOST_WORKERS),
        "protocol.stopping.patience": (stopping.patience, 1, math.inf),
        "protocol.stopping.min_delta": (stopping.min_delta, 0, math.inf),
        "optim.lr": (optim.lr, 0, math.inf),
        "optim.loss_lr": (optim.loss_lr, 0, math.inf),
        "optim.loss_lr_ratio": (optim.loss_lr_ratio, 0, math.inf),
        "optim.weight_decay": (optim.weight_decay, 0, math.inf),
        "optim.warmup_epochs": (optim.warmup_epochs, 0, math.inf),
        "transform.size": (transform.size, 1, MOST_PIXELS),
        "transform.resize": (transform.resize, 1, MOST_PIXELS),
        "transform.test_resize": (transform.test_resize, 1, MOST_PIXELS),
        "transform.padding": (transform.padding, 0, MOST_PIXELS),
        "transform.degrees": (transform.degrees, 0, 360),
    }
    for name, (number, low, most) in limits.items():
        if number is not None and not (low <= number <= most and number < math.inf):
            limit = "" if most == math.inf else f", at most {most}"
            yield name, f"{number} must be a number, at least {low}{limit}"


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


def names(config: Config) -> Iterator[tuple[str, str]]:
    """What every node must say of itself, and names that become parts of the run folder's path."""
    for node, keys in (
        ("loss", ("name", "result_id", "batch_kind", "_target_")),
        ("method", ("name", "_target_")),
        ("backbone", ("name", "_target_")),
        ("tracking", ("_target_",)),
    ):
        options = getattr(config, node)
        for key in keys if options is not None else ():
            if key not in options:
                yield f"{node}.{key}", "missing; give it a value"
            elif not (isinstance(options[key], str) and options[key]):
                yield f"{node}.{key}", f"{shown(options[key])} must be text"
    folders = {f"{node}.name": getattr(config, node) for node in ("loss", "method", "backbone")}
    words = {option: (node or {}).get("name") for option, node in folders.items()}
    words |= {"data.name": config.data.name, "protocol.name": config.protocol.name}
    words["experiment.id"] = config.experiment.id
    for option, word in words.items():
        if isinstance(word, str) and not re.fullmatch(r"\w[\w.+=,@-]*", word):
            yield (
                option,
                f"'{word}' is part of the run folder's name: letters, digits and . _ - + = only, "
                f"a letter or digit first",
            )
    if config.outputs is not None and (problem := _no_folder(config.outputs)):
        yield "outputs", problem


def _no_folder(path: str) -> str:
    """Why run folders cannot be made below `path`; empty if they can."""
    if not path:
        return "'' is no folder; write outputs=. for this one"
    there = next(one for one in (Path(path), *Path(path).absolute().parents) if one.exists())
    if not there.is_dir():
        return f"cannot be made below {there}, which is no folder"
    return "" if os.access(there, os.W_OK) else f"{there} cannot be written"


def groups(config: Config) -> Iterator[tuple[str, str]]:
    """Own values of the optimizer's groups: numbers that an optimizer can compute with."""
    for name, values in (config.optim.groups or {}).items():
        if not isinstance(values, dict):
            yield f"optim.groups.{name}", f"{shown(values)} must be options, such as {{lr: 1e-3}}"
            continue
        for key, value in values.items():
            numbers = value if isinstance(value, list) else [value]
            if not all(isinstance(one, int | float) and 0 <= one < math.inf for one in numbers):
                yield f"optim.groups.{name}.{key}", f"{shown(value)} must be a number, at least 0"


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
