"""Cost and progress of experiments: training runs, hours and disk space of each run.

Estimated hours show only whether a table takes hours or months: the number of images to train on
over the images per second that a network is assumed to train on one data-center GPU, or on one CPU
core with `device=cpu`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import pandas as pd

from dml.core.atomic_io import read_json
from dml.core.option_values import SPLITS
from dml.results.catalog import Cell, list_cells

NETWORKS: dict[str, tuple[float | None, float | None, float | None]] = {
    # images per second in training on a GPU, and on one core; millions of parameters
    "bn_inception": (1200.0, None, 10.3),
    "resnet50": (800.0, None, 23.5),
    "vit_s16": (900.0, None, 21.7),
    "dino_s16": (900.0, None, 21.7),
    "vit_b16": (350.0, None, 85.8),
    "small_cnn": (20000.0, 600.0, 0.1),  # evaluations every 50 steps included
    "tf_efficientnet_lite0": (None, 45.0, None),  # at 48 pixels
    "identity": (30000.0, 25000.0, 0.2),  # rows of 1,280 features, and a head of 1,280 × 128
    # of the first ViTs above, by the multiplications of an image
    "vit_base_patch32_clip_quickgelu_224.openai": (1400.0, None, 87.5),
    "vit_base_patch16_clip_quickgelu_224.openai": (350.0, None, 85.8),
    "vit_large_patch14_clip_quickgelu_224.openai": (85.0, None, 303.2),
    "vit_small_patch16_224.dino": (900.0, None, 21.7),
    "vit_small_patch8_224.dino": (185.0, None, 21.7),
    "vit_base_patch16_224.dino": (350.0, None, 85.8),
    "vit_base_patch8_224.dino": (80.0, None, 85.8),
    "vit_small_patch14_dinov2.lvd142m": (680.0, None, 21.6),  # at 224 pixels
    "vit_small_patch14_reg4_dinov2.lvd142m": (680.0, None, 21.6),
    "vit_base_patch14_dinov2.lvd142m": (265.0, None, 85.7),
    "vit_base_patch14_reg4_dinov2.lvd142m": (265.0, None, 85.7),
    "vit_large_patch14_dinov2.lvd142m": (85.0, None, 303.2),
    "vit_large_patch14_reg4_dinov2.lvd142m": (85.0, None, 303.2),
    "resnet50.tv_in1k": (800.0, None, 23.5),
    "vit_small_patch16_dinov3.lvd1689m": (880.0, None, 21.6),
    "vit_base_patch16_siglip_224.v2_webli": (350.0, None, 92.9),
    "vit_base_patch16_clip_224.openai": (350.0, None, 86.2),
}
UNKNOWN = (None, None, None)
FLOAT32_SPEED = 0.5  # on a GPU, relative to TF32
EVALUATION_COST = 1 / 3  # of an image, relative to training
PATIENCES = 5  # that training is assumed to last for, where it may stop early


def estimate_hours(cell: Cell) -> float | None:
    """Returns the hours of a cell; None if they are unknown.

    They are those of all its training runs, or of embedding the test images if there are none.
    """
    protocol: Any = cell.options.protocol
    if cell.trainings:
        hours, times = estimate_training_hours(cell.options), cell.trainings
    else:
        hours = estimate_embedding_hours(cell.options)
        times = protocol.repeats * SPLITS[protocol.splits].folds
    return None if hours is None else hours * times


def estimate_embedding_hours(cfg: Any) -> float | None:
    """Returns the hours of one pass of the evaluated images; None if they are unknown."""
    speed, images = _training_speed(cfg), count_evaluated_images(cfg)
    if speed is None or images is None:
        return None
    return images * EVALUATION_COST / speed / 3600


def count_evaluated_images(cfg: Any) -> float | None:
    """Returns about how many images an evaluation embeds; None if it is unknown."""
    images = _count_images(cfg, "TRAIN_IMAGES")
    return None if images is None else _evaluated_images(cfg, images)


def estimate_training_hours(cfg: Any) -> float | None:
    """Returns the hours of one training run; None if they are unknown."""
    protocol, data = cfg.protocol, cfg.data
    share = SPLITS[protocol.splits].training_share
    speed = _training_speed(cfg)
    images = _count_images(cfg, "TRAIN_IMAGES")
    steps = protocol.steps_per_epoch
    if steps is None and images is not None:
        steps = images * share // data.batch_size
    if speed is None or steps is None:
        return None
    every = protocol.evaluate_every  # in epochs
    if protocol.evaluate_unit == "steps":
        every /= steps
    epochs = _assumed_epochs(protocol, every)
    work = epochs * steps * data.batch_size * _passes(cfg.method)
    if images is not None and cfg.device != "cpu":
        work += epochs / every * _evaluated_images(cfg, images) * EVALUATION_COST
    return work / speed / 3600


def _evaluated_images(cfg: Any, images: int) -> float:
    """Returns the images of an evaluation: of the validation classes, or else of the test classes.

    If the number of test images is not known, it counts as that of training images.

    Args:
        cfg: of the run.
        images: that are for training.
    """
    share = SPLITS[cfg.protocol.splits].training_share
    if share < 1:
        return images * (1 - share)
    return _count_images(cfg, "TEST_IMAGES") or images


def _training_speed(cfg: Any) -> float | None:
    """Returns the images per second in training on the device; None if they are unknown."""
    on_gpu, on_cpu, _ = NETWORKS.get(_network(cfg), UNKNOWN)
    if cfg.device == "cpu":
        return on_cpu
    is_slow = cfg.precision == "fp32" and cfg.speed == "exact"
    return on_gpu * FLOAT32_SPEED if on_gpu and is_slow else on_gpu


def _network(cfg: Any) -> str:
    """Returns the name of the network that a run trains; features have the name of theirs."""
    on_features = cfg.backbone["_target_"].endswith(".Identity")
    name: str = "identity" if on_features else cfg.backbone.name
    return name


def _assumed_epochs(protocol: Any, every: float) -> float:
    """Returns the epochs of a run that may stop early; `every`: epochs between evaluations."""
    patience = protocol.stopping.patience
    if patience is None:
        return protocol.epochs
    longest = PATIENCES * patience
    if protocol.stopping.unit != "epochs":
        longest *= every
    return min(protocol.epochs, longest)


def _passes(method: Any) -> float:
    """Returns the images that a method passes through the network, per image of the batch."""
    if method.name == "imix":
        return 2.0
    if method.name == "metrix" and "input" in method.types:
        # About three mixes of a batch with few images per class, in the steps that draw this type.
        return 1 + 3 / len(method.types)
    return 1.0


def _count_images(cfg: Any, name: str) -> int | None:
    """Returns the number of training or test images of a dataset; None if it is not fixed.

    Args:
        cfg: of the run, with a reader whose module may define the number.
        name: `TRAIN_IMAGES` or `TEST_IMAGES`.
    """
    module = cfg.data.reader["_target_"].rpartition(".")[0]
    with suppress(ImportError, ValueError):
        return getattr(import_module(module), name, None)
    return None


def estimate_gigabytes(cell: Cell) -> float | None:
    """Returns the disk space of the models that a finished run keeps; None if it is unknown."""
    millions = NETWORKS.get(_network(cell.options), UNKNOWN)[2]
    models = cell.options.protocol.repeats * SPLITS[cell.options.protocol.splits].folds
    if millions is None:
        return None
    return 4e-3 * millions * models if cell.trainings else 0.0


def plan_frame(
    experiment: str, overrides: Sequence[str] = (), runs: str = "outputs"
) -> pd.DataFrame:
    """Returns a row per run of an experiment, finished or not.

    Columns: `experiment`, `command`, `overrides` (as typed in a shell), `status` (done, started or
    missing), `trainings`, `device` (gpu, or cpu for one core) for which hours are `estimated`,
    `gigabytes` on disk (both NaN if unknown), and `measured` hours of finished runs.

    Args:
        experiment: id of the experiment.
        overrides: options of the command line; another budget means other runs.
        runs: folder of run folders.

    Raises:
        ConfigError: wrong options, a line each.
    """
    rows = []
    for cell in list_cells(experiment, overrides, runs):
        summary = read_json(cell.folder / "summary.json")
        status, measured = "missing", None
        if summary:
            status, measured = "done", summary["wall_seconds"] / 3600
        elif (cell.folder / "config.yaml").exists():
            status = "started"
        costs = estimate_hours(cell), estimate_gigabytes(cell), measured
        device = "cpu" if cell.options.device == "cpu" else "gpu"
        words = shlex.join(cell.overrides)
        rows.append((experiment, cell.command, words, status, cell.trainings, device, *costs))
    numbers = ["estimated", "gigabytes", "measured"]
    columns = ["experiment", "command", "overrides", "status", "trainings", "device", *numbers]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))


def hours_left(plan: pd.DataFrame) -> float:
    """Returns the hours of the runs that are not finished, at the pace of those that are."""
    done = plan.status == "done"
    expected = plan.estimated[done].sum(skipna=False)
    pace = plan.measured.sum() / expected if expected else 1.0
    return pace * plan.estimated[~done].sum(skipna=False)
