"""Conflicts between options, and notes on unusual combinations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dml.config import search_space
from dml.config.schema import LORA, MAX_PIXELS, Config, EvaluateConfig, Lora, ProtocolConfig
from dml.core.launcher import read_launch
from dml.core.metric_names import ACCURACIES, CHOICES, can_select, select_columns
from dml.core.option_values import SPLITS, has_seen_classes

METRIX, I_MIX = "dml.methods.metrix.Metrix", "dml.methods.mixing_baselines.IMix"
CCP = "dml.methods.chance_constrained.ChanceConstrained"
XBM = "dml.methods.cross_batch.CrossBatchMemory"
PML_LOSSES = ("pytorch_metric_learning.", "dml.losses.baselines.")
TIMM_BACKBONE = "dml.models.backbones.TimmBackbone"
CLOSED_SET = "closed_set"  # value of protocol.splits, and a part of the name of its protocols
HIDDEN = 256  # default of embedder.hidden
SHARES = ("test_share", "validation_share", "split_seed", "neighbors")  # options of closed_set
FEATURES, IDENTITY = "dml.data.readers.features.read_features", "dml.models.identity.Identity"


def find_conflicts(config: Config, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields conflicts between options as (option, problem).

    Args:
        config: the typed config.
        options: dotted option → value of the whole config.
    """
    if not config.experiment.trains:
        yield "experiment", f"{config.experiment.id} trains nothing; {config.experiment.script}"
    yield from _find_image_choices(config)
    yield from _find_batch_conflicts(config)
    yield from _find_process_conflicts(config, read_launch().size)
    yield from _find_mixing_conflicts(config)
    yield from _find_selection_conflicts(config, options)
    yield from _find_size_conflicts(config)
    yield from _find_training_conflicts(config)
    yield from _find_transform_conflicts(config)
    if isinstance(config, EvaluateConfig) and None not in (config.run, config.embeddings):
        yield "embeddings", "cannot be given together with run: the file replaces a network"


def _find_image_choices(config: Config) -> Iterator[tuple[str, str]]:
    """Yields choices of images that the reader of the dataset does not have."""
    data = config.data
    for option, argument in {"crop": "crop", "images": "resolution"}.items():
        value = getattr(data, option)
        if data.reader.get(argument, value) != value:
            yield f"data.reader.{argument}", f"it follows data.{option}; set that instead"
    if data.crop is not None and "crop" not in data.reader:
        yield "data.crop", f"data={data.name} has no published boxes; data=cub and data=cars have"
    if data.images is not None and "resolution" not in data.reader:
        yield "data.images", f"data={data.name} has images of one size; data=inshop has two"


def _find_mixing_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of methods that mix images, of stored features, and of micro-batches."""
    types = _mixed_types(config)
    if config.embedder.get("pooling") == "native" and "feature" in types:
        yield "embedder.pooling", "native cannot pool mixed features; use avg or max"
    on_features = config.data.reader.get("_target_") == FEATURES
    if on_features != (config.backbone["_target_"] == IDENTITY):
        advice = "leave backbone out" if on_features else "it is for data=features only"
        yield "backbone", f"{config.backbone['name']} with data={config.data.name}: {advice}"
    if config.method["_target_"] == I_MIX or set(types) - {"embed"}:
        yield from _find_image_conflicts(config, on_features, bool(types))
    if config.data.micro_batch and config.compile == "reduce-overhead":
        yield "compile", "CUDA graphs cannot embed images twice, as data.micro_batch does"


def _find_image_conflicts(
    config: Config, on_features: bool, of_metrix: bool
) -> Iterator[tuple[str, str]]:
    """Yields conflicts of a method that mixes images, or features of them."""
    advice = "; use 'method.types=[embed]'" if of_metrix else ""
    if on_features:
        yield "method", f"it mixes images, and data=features has none{advice}"
    if config.data.micro_batch:
        yield "data.micro_batch", f"the method mixes images or features of all parts{advice}"


def _mixed_types(config: Config) -> Sequence[str]:
    """Returns what Metrix mixes: input, feature or embed; empty for other methods."""
    if config.method["_target_"] != METRIX:
        return ()
    return config.method.get("types") or ()


def _find_selection_conflicts(config: Config, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields conflicts between the protocol, the search and the schedule."""
    protocol = config.protocol
    if config.search is not None:
        yield from search_space.find_problems(config.space, options)
    if config.search is not None and protocol.selected_on != "validation":
        others = "validation, holdout, closed_set, mlrc, mlrc_ccp or mlrc_features"
        problem = f"protocol '{protocol.name}' has no validation data to search on"
        yield "search", f"{problem}; use protocol={others}"
    if config.optim.schedule_args and config.optim.schedule is None:
        yield "optim.schedule_args", "there is no schedule; write optim.schedule=step or cosine too"
    yield from _find_stage_conflicts(config)
    yield from _find_metric_conflicts(config)
    yield from _find_class_conflicts(config, options)
    selected_on = SPLITS[protocol.splits].selected_on
    if selected_on != protocol.selected_on:
        problem = f"splits '{protocol.splits}' select the epoch on {selected_on}"
        yield "protocol.selected_on", f"{problem}, not on {protocol.selected_on}"


def _find_stage_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of a method with stages with a protocol that scores nothing."""
    protocol, method = config.protocol, config.method
    has_stages = method["_target_"] == CCP and method.get("stages") != 1
    if has_stages and SPLITS[protocol.splits].selected_on == "nothing":
        problem = f"a stage ends when the scores stall; protocol '{protocol.name}' has none"
        yield "method.stages", f"{problem}; use method.stages=1, or protocol=validation"


def _find_metric_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of the metric that selects the best epoch."""
    select, metrics = config.protocol.select_metric, config.evaluation.metrics
    owners = [name for name in metrics if select_columns([select], [name])]
    if owners and metrics[owners[0]].get("best_only"):
        yield (
            f"evaluation.metrics.{owners[0]}.best_only",
            "the metric selects the best epoch (protocol.select_metric), so that every "
            "evaluation needs it; leave best_only out",
        )
    seen_classes = has_seen_classes(config.protocol.splits)
    if owners or can_select(select, seen_classes):
        return
    choices = [CHOICES, *metrics]
    if seen_classes:
        choices[1:1] = ACCURACIES
    problem = f"'{select}' must be one of {' | '.join(choices)}"
    if select in ACCURACIES:
        problem += "; accuracies are of protocol=closed_set"
    yield "protocol.select_metric", problem


def _find_class_conflicts(config: Config, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields conflicts of the classes of the test with the name of the protocol, and of shares.

    Tables tell protocols apart by their names, so that a closed set needs one of its own.
    """
    if "shared_classes" in config.data.reader:
        yield "data.reader.shared_classes", "follows from the protocol; use protocol=closed_set"
    protocol = config.protocol
    is_closed = has_seen_classes(protocol.splits)
    is_named = [CLOSED_SET in name for name in (protocol.name, protocol.result_id)]
    if is_closed and not all(is_named):
        problem = f"splits '{protocol.splits}' test the classes that they train on"
        yield "protocol.splits", f"{problem}; use protocol=closed_set, whose runs stand apart"
    elif any(is_named) and not is_closed:
        problem = f"'{protocol.splits}' tests unseen classes, and '{protocol.name}' names a closed"
        yield "protocol.splits", f"{problem} set; use another protocol"
    else:
        yield from _find_share_conflicts(protocol, is_closed, options)


def _find_share_conflicts(
    protocol: ProtocolConfig, is_closed: bool, options: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yields conflicts of the shares of a closed set's images; other protocols have none."""
    if not is_closed:
        for name in SHARES:
            if f"protocol.{name}" in options:
                yield f"protocol.{name}", "is an option of protocol=closed_set alone; leave it out"
    elif protocol.test_share + protocol.validation_share >= 1:
        yield (
            "protocol.test_share",
            f"{protocol.test_share:g} and protocol.validation_share={protocol.validation_share:g} "
            f"leave nothing to train on; their sum must be less than 1",
        )


def _find_size_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts between the sizes of images."""
    side = config.backbone.get("input_size")
    if type(side) is int and not 1 <= side <= MAX_PIXELS:  # own networks may take other types
        yield "backbone.input_size", f"{side} must be between 1 and {MAX_PIXELS}"
        return
    crop, resize = config.crop_size, config.test_resize
    crops = config.transform.augmentation == "random_resized_crop"
    if crops and crop is None and "input_size" in config.backbone:
        problem = f"backbone '{config.backbone['name']}' takes images of any size"
        yield "transform.size", f"{problem}; set one, for example transform.size=64"
    if crop is not None and resize is not None and crop > resize:
        problem = f"{resize} pixels are fewer than the crop of {crop}"
        yield "transform.test_resize", f"{problem}; use auto, or at least {crop}"


def _find_training_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of the optimizer and of the trained part with the network."""
    optim, part = config.optim, config.backbone.get("train", "all")
    is_count = type(part) is int and part > 0
    if not is_count and part not in ("all", "none", LORA):
        yield "backbone.train", f"{part} must be all, none, lora, or a number of blocks, at least 1"
    yield from _find_adapter_conflicts(config)
    if optim.warmup_steps and optim.schedule_unit == "epochs":
        yield "optim.schedule_unit", "a warm-up of the rates (optim.warmup_steps) needs steps"
    if optim.layer_decay < 1 and config.backbone["_target_"] != TIMM_BACKBONE:
        yield (
            "optim.layer_decay",
            f"needs a network that timm divides into layers (backbone=timm and others of timm); "
            f"{config.backbone['name']} is none",
        )


def _find_adapter_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of LoRA with the network."""
    backbone = config.backbone
    if backbone.get("train") == LORA:
        if backbone["_target_"] != TIMM_BACKBONE:
            yield "backbone.train", f"lora needs a network of timm; {backbone['name']} is none"
    elif Lora(**backbone.get("lora", {})) != Lora():
        yield "backbone.lora", "has no effect here; add backbone.train=lora"


def _find_transform_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts of augmentations and transforms of the user."""
    transform = config.transform
    if config.backbone["_target_"] == IDENTITY:
        for option, value in {"then": transform.then, "_target_": transform.target}.items():
            if value:
                problem = "changes images, and stored features are none; leave it out"
                yield f"transform.{option}", problem
    if transform.args and transform.target is None:
        yield "transform.args", "are of a class of yours; write transform._target_=<class> too"


def _find_batch_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yields conflicts between the sampler, the batch and the loss."""
    batch, m, sampler = config.data.batch_size, config.data.images_per_class, config.data.sampler
    needs_pairs = config.loss["batch_kind"] == "pair"
    if sampler == "random" or isinstance(sampler, dict):
        if needs_pairs and batch == 1:
            problem = f"loss '{config.loss['name']}' compares images of a batch"
            yield "data.batch_size", f"{problem}; use 2 or more"
        return
    categories = config.data.categories_per_batch if sampler == "category" else 1
    if m is None:
        yield "data.images_per_class", f"sampler '{sampler}' needs a number"
    elif categories is None:
        yield "data.categories_per_batch", f"sampler '{sampler}' needs a number"
    else:
        yield from _find_group_conflicts(config, categories, m)


def _find_group_conflicts(config: Config, categories: int, m: int) -> Iterator[tuple[str, str]]:
    """Yields conflicts of a batch of categories, and of m images of a class."""
    batch, loss = config.data.batch_size, config.loss["name"]
    needs_pairs = config.loss["batch_kind"] == "pair"
    if batch % (categories * m):
        least = 2 * m if needs_pairs else m
        parts = f"{m} images per class"
        if categories > 1:
            parts = f"{categories} categories x {parts}"
        nearest = _nearest_multiples(batch, categories * m, least)
        yield "data.batch_size", f"batch {batch} must be a multiple of {parts} (nearest {nearest})"
    elif m == 1 and needs_pairs:
        problem = f"loss '{loss}' needs pairs of images of one class"
        yield "data.images_per_class", f"{problem}; use 2 or more"
    elif batch < 2 * m and needs_pairs:
        yield (
            "data.batch_size",
            f"batch {batch} holds one class, {m} images of it, and loss '{loss}' needs two; use "
            f"{2 * m} or more",
        )


def _find_process_conflicts(config: Config, processes: int) -> Iterator[tuple[str, str]]:
    """Yields conflicts of options with a run on several processes."""
    if processes == 1:
        return
    batch, m = config.data.batch_size, config.data.images_per_class
    if batch % processes:
        unit, least = processes, 1
        if config.data.sampler in ("class_stream", "balanced", "category") and m is not None:
            unit = math.lcm(processes, m * (config.data.categories_per_batch or 1))
            if config.loss["batch_kind"] == "pair":
                least = 2 * m
        nearest = _nearest_multiples(batch, unit, least)
        problem = f"batch {batch} must be a multiple of {processes} processes (nearest {nearest})"
        yield "data.batch_size", problem
    if config.protocol.workers > 1:
        yield (
            "protocol.workers",
            f"{config.protocol.workers} models in parallel, or one at a time by {processes} "
            f"processes of torchrun, but not both; use protocol.workers=1, or python",
        )
    if config.search is not None:
        yield (
            "search",
            "torchrun's processes would share each trial, which is slow for small batches; start "
            "the command with python once per GPU (device=cuda:0, device=cuda:1, …), to run trials "
            "in parallel",
        )


def _nearest_multiples(number: int, unit: int, least: int = 1) -> str:
    """Returns the multiples of a unit next to a number; above `least`, only the first of them."""
    floor = number // unit * unit
    if floor < least:
        return str(math.ceil(least / unit) * unit)
    return f"{floor}, {floor + unit}"


def find_notes(config: Config) -> Iterator[str]:
    """Yields notes on allowed combinations that make results less comparable."""
    data, resize = config.data, config.transform.resize
    if data.sampler == "random" and data.images_per_class is not None:
        yield "data.images_per_class has no effect with data.sampler=random; balanced uses it"
    if data.sampler != "category" and data.categories_per_batch is not None:
        yield "data.categories_per_batch has no effect without data.sampler=category"
    if isinstance(data.cache, int) and resize != data.cache:
        size = "as decoded" if resize is None else f"resized to {resize}"
        yield (
            f"data.cache={data.cache} keeps small images, so training crops differ from those of "
            f"the protocol, which are crops of images {size}"
        )
    if data.variant != data.name:
        yield (
            f"the images are other ones than the papers' ({data.variant}): no number of a paper "
            f"is compared with the scores"
        )
    yield from _find_idle_options(config)
    yield from _find_network_notes(config)


def _find_idle_options(config: Config) -> Iterator[str]:
    """Yields notes on options without effect, which make a run differ from an equal one."""
    data, search = config.data, config.search
    if search is not None and search.pruning and SPLITS[config.protocol.splits].folds == 1:
        yield "search.pruning has no effect with one fold: a trial is scored at its end"
    if data.micro_batch is not None and data.micro_batch >= data.batch_size:
        yield f"data.micro_batch has no effect: it is not below data.batch_size={data.batch_size}"
    yield from _find_idle_head_options(config.embedder)
    yield from _find_idle_augmentations(config)
    yield from _find_idle_optimizer_options(config)


def _find_idle_head_options(embedder: Mapping[str, Any]) -> Iterator[str]:
    """Yields notes on options of head and pooling without effect."""
    head, hidden = embedder.get("head"), embedder.get("hidden")
    if head not in (None, "mlp") and hidden not in (None, HIDDEN):
        yield f"embedder.hidden has no effect with embedder.head={head}; mlp uses it"
    if embedder.get("pooling") == "native" and embedder.get("token_pooling") == "mean":
        yield "embedder.token_pooling has no effect with embedder.pooling=native; avg uses it"


def _find_idle_augmentations(config: Config) -> Iterator[str]:
    """Yields notes on shifts and rotations that the augmentation leaves out."""
    transform = config.transform
    if transform.target is not None:
        return
    chosen = transform.augmentation
    if transform.degrees and chosen != "random_affine":
        yield f"transform.degrees has no effect with {chosen} (transform.augmentation)"
    if transform.padding and chosen not in ("random_crop", "random_affine"):
        yield f"transform.padding has no effect with {chosen} (transform.augmentation)"


def _find_idle_optimizer_options(config: Config) -> Iterator[str]:
    """Yields notes on options of the optimizer without effect, and on a frozen backbone."""
    optim, epochs = config.optim, config.protocol.epochs
    clips = optim.clip_value is not None or optim.clip_norm is not None
    if optim.clip_loss_parameters and not clips:
        yield "optim.clip_loss_parameters has no effect without optim.clip_norm or clip_value"
    is_scheduled = optim.schedule is not None or optim.warmup_steps > 0
    if optim.schedule_unit == "steps" and not is_scheduled:
        yield "optim.schedule_unit has no effect without optim.schedule"
    if 0 < epochs <= optim.warmup_epochs:
        yield (
            f"optim.warmup_epochs={optim.warmup_epochs} is the whole training "
            f"(protocol.epochs={epochs}): the backbone is not trained"
        )


def _find_network_notes(config: Config) -> Iterator[str]:
    """Yields notes on the network."""
    published, backbone = config.protocol.backbones, config.backbone
    name = backbone["name"]
    if published and not config.data.stands_in and name not in published:
        yield (
            f"protocol={config.protocol.name} was published with {', '.join(published)}; there is "
            f"no published number for backbone={name}"
        )
    if backbone.get("train") == LORA and backbone.get("weights") in (None, "none"):
        yield (
            "backbone.train=lora adapts random weights here (backbone.weights=none), which is of "
            "use in tests only; checkpoints hold the whole network"
        )
    compares_references = config.method["_target_"] in (CCP, XBM)
    is_from_pml = str(config.loss["_target_"]).startswith(PML_LOSSES)
    if compares_references and is_from_pml and config.embedder.get("normalize") == "none":
        yield (
            f"embedder.normalize=none: this method compares vectors of any length, and the loss "
            f"{config.loss['name']} no longer divides them by their length"
        )
