"""What is wrong with a config whose options are right one by one: what does not fit together."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dml.config.schema import Config, EvaluateConfig
from dml.core.launcher import read_launch


def fits(config: Config) -> Iterator[tuple[str, str]]:
    """Values that are fine alone but not together."""
    if not config.experiment.trains:
        yield "experiment", f"{config.experiment.id} trains nothing; {config.experiment.script}"
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
    yield from _together(config, read_launch().size)
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


def _together(config: Config, processes: int) -> Iterator[tuple[str, str]]:
    """What several processes cannot share."""
    if processes == 1:
        return
    if isinstance(config, EvaluateConfig):
        yield "torchrun", "evaluate.py is one process; start it with python"
        return
    batch, m = config.data.batch_size, config.data.images_per_class
    unit = processes if config.data.sampler == "random" or m is None else math.lcm(processes, m)
    if batch % processes:
        near = [str(size) for size in (batch // unit * unit, (batch // unit + 1) * unit) if size]
        yield (
            "data.batch_size",
            f"batch {batch} must be a multiple of {processes} processes "
            f"(nearest {', '.join(near)})",
        )
    if config.protocol.workers > 1:
        yield (
            "protocol.workers",
            f"{config.protocol.workers} models side by side, or one at a time by {processes} "
            f"processes of torchrun, but not both; use protocol.workers=1, or python",
        )
    if config.search is not None:
        yield (
            "search",
            "processes of torchrun share one trial, which small batches gain little by; start the "
            "same command with python once for each GPU (device=cuda:0, device=cuda:1, …): they "
            "share out the trials",
        )
    if ":" in config.device:
        yield (
            "device",
            f"{config.device} is one GPU for {processes} processes; with device=cuda each "
            "takes its own",
        )


def notes(config: Config) -> Iterator[str]:
    """What is allowed but worth knowing before a number is compared."""
    side, t, data = config.data.cache, config.transform, config.data
    if data.sampler == "random" and data.images_per_class is not None:
        yield (
            f"data.images_per_class={data.images_per_class} has no effect with "
            f"data.sampler=random; data.sampler=balanced draws so many of each class"
        )
    if isinstance(side, int) and t.resize != side:
        yield (
            f"data.cache={side} keeps small images, so training crops differ from those of the "
            f"protocol, which cuts them from images "
            f"{'as decoded' if t.resize is None else f'resized to {t.resize}'}"
        )
    ran = config.protocol.lookup.get("backbones")
    if ran and not config.data.stand_in and config.backbone["name"] not in ran:
        yield (
            f"protocol={config.protocol.name} was published with {', '.join(ran)}; there is no "
            f"printed number for backbone={config.backbone['name']}"
        )
    if isinstance(side, int) and t.test_resize is not None and t.test_resize > side:
        yield f"data.cache={side} is smaller than transform.test_resize={t.test_resize}"
