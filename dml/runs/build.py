"""The objects that a config describes: data, network, method, optimizer, tracker.

Options are bound to the constructors that `_target_` names here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dml.config.check import check
from dml.config.constructor import Constructor
from dml.config.explain import compose_config
from dml.config.schema import LORA, Config, resolve_test_resize
from dml.config.signatures import import_target
from dml.config.stored_network import TIMM
from dml.core.counts import count_of
from dml.core.errors import ConfigError, UserError
from dml.core.option_values import has_seen_classes
from dml.core.signals import raise_on_signals
from dml.data import transforms
from dml.data.augmentations import NAMED, Augmentations, CustomTransform, ImageFunction
from dml.data.cache import open_image_source
from dml.data.closed_set import Shares, divide_classes, leave_out_untrained
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex, Subset
from dml.data.preparation.image_check import exclude_undecodable
from dml.data.protocol_splits import merge_query_and_gallery, take_part
from dml.data.reader_check import check_reader
from dml.data.readers.features import hash_features
from dml.methods.plain import Plain
from dml.methods.reference_losses import disable_normalization
from dml.models.backbones import Backbone, check_training_mode, complete
from dml.models.embedder import Embedder, compile_backbone
from dml.models.freezing import find_frozen, freeze_backbone
from dml.models.identity import Identity
from dml.models.lora import add_adapters
from dml.models.weights import WeightFile
from dml.runs.custom_metrics import CustomMetric
from dml.tracking import Tracker
from dml.training.data_parallel import synchronize_batch_norm
from dml.training.device import set_precision
from dml.training.interfaces import Method
from dml.training.micro_batches import uses_batch_statistics
from dml.training.optim import build_optimizer, parameter_groups
from dml.training.process_group import ProcessGroup
from dml.training.schedules import default_arguments, named_schedule, scale_rates, warm_up

# Supplied to losses and methods that accept them, under the names of other codebases too.
CLASSES = "num_classes num_class n_classes n_class nb_classes class_num classes out_features"
WIDTH = (
    "embedding_size embedding_dim embed_dim emb_dim feat_dim feature_dim in_features sz_embed "
    "sz_embedding descriptors_dim"
)
SIZES = f"{CLASSES} {WIDTH}".split()

# By option: the base class of what is built, and its description for messages.
REQUIRED: dict[str, tuple[Any, str]] = {
    "loss": (nn.Module, "a loss, a torch.nn.Module"),
    "loss.miner": (Callable, "a miner, which can be called"),
    "method": (Method, "a method; derive it from dml.training.interfaces.Method"),
    "backbone": (nn.Module, "a backbone, a torch.nn.Module"),
    "transform.args": (Callable, "a transform, which can be called with an image"),
    "data.reader": (ImageIndex, "an index of images, a dml.data.image_index.ImageIndex"),
    "tracking": (Tracker, "a tracker; derive it from dml.tracking.Tracker"),
    "optim.schedule": (LRScheduler, "a learning-rate schedule"),
}
NODES: dict[str, Callable[[Config], dict[str, Any] | None]] = {
    "loss": lambda c: c.loss,
    "loss.miner": lambda c: c.loss.get("miner"),
    "method": lambda c: c.method,
    "backbone": lambda c: c.backbone,
    "embedder": lambda c: {**c.embedder, "_target_": "dml.models.embedder.Embedder"},
    "data.reader": lambda c: c.data.reader,
    "tracking": lambda c: c.tracking,
    "data.sampler": lambda c: c.data.sampler if isinstance(c.data.sampler, dict) else None,
    "transform.args": lambda c: (
        {**c.transform.args, "_target_": c.transform.target} if c.transform.target else None
    ),
    "optim.args": lambda c: _optimizer_node(c),
    "optim.schedule": lambda c: named_schedule(
        c.optim.schedule, c.protocol.epochs, c.optim.schedule_args
    ),
}
# By option: names of arguments that are added.
SUPPLIED: dict[str, Collection[str]] = {
    "loss": SIZES,
    "method": ("loss", "miner", *SIZES),
    "embedder": ("backbone",),
    "data.reader": ("root", "shared_classes"),
    "data.sampler": ("labels", "batch_size", "seed", "images_per_class", "m", "data_source"),
    "transform.args": ("train", "size"),
    "optim.args": ("params", "lr", "weight_decay"),
    "optim.schedule": ("optimizer",),
}


class Transforms(NamedTuple):
    """The transforms of an image on its way into the network."""

    train: nn.Module
    test: nn.Module
    to_input: nn.Module


def _optimizer_node(config: Config) -> dict[str, Any]:
    """Returns class and arguments of the optimizer.

    Without `fused`, which some protocols set and `build_optimizer` leaves out where it is unknown.
    """
    arguments = {name: value for name, value in config.optim.args.items() if name != "fused"}
    return {**arguments, "_target_": config.optim.target}


class Builder:
    """Builds the objects of a run from its config."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def constructor(self, option: str) -> Constructor:
        """Returns the constructor of a node."""
        kinds = REQUIRED.get(option, ())
        return Constructor(
            NODES[option](self.config) or {}, option, SUPPLIED.get(option, ()), *kinds
        )

    def check_arguments(self) -> None:
        """Raises ConfigError with all options that do not fit their constructors."""
        problems: list[str] = []
        for option, node in NODES.items():
            if node(self.config) is not None:
                problems += self.constructor(option).problems
        for metric in self.metrics:
            problems += metric.problems
        if problems:
            raise ConfigError(p.replace(".args._target_", "._target_") for p in problems)

    @cached_property
    def metrics(self) -> list[CustomMetric]:
        """The metrics of the user."""
        nodes = self.config.evaluation.metrics
        return [CustomMetric(name, node) for name, node in nodes.items()]

    def tracker(self) -> Tracker:
        """The tracker."""
        return self.constructor("tracking")()

    def index(self, dataset: ImageIndex | None = None) -> ImageIndex:
        """Returns the index of the dataset; the user's images are decoded once, to check them.

        Args:
            dataset: as its reader gives it, if it was read before.
        """
        data = self.config.data
        index = self.read_dataset() if dataset is None else dataset
        is_closed = has_seen_classes(self.config.protocol.splits)
        if is_closed:
            index = divide_classes(index, self._shares)
        index = replace(
            index,
            max_pixels=data.max_pixels,
            apply_orientation=data.exif_orientation,
            background=data.background,
        )
        if index.features is not None:
            self._check_width(index.features.plain.shape[1])
        if data.identified_by == "place":
            index = self._identify_content(index)
        if data.stands_in or self._is_other_count(data.reader):
            index = take_part(index, data.classes, data.images_per_class_at_most)
        if is_closed:
            index = leave_out_untrained(index)
        if data.query_gallery == "none":
            return merge_query_and_gallery(index)
        return index

    def read_dataset(self) -> ImageIndex:
        """Returns the index of the dataset as its reader gives it.

        Raises:
            UserError: the dataset is not there, or incomplete.
        """
        reader = self.constructor("data.reader")
        is_closed = has_seen_classes(self.config.protocol.splits)
        supplied = {"root": self.config.data.root, "shared_classes": is_closed}
        return check_reader(reader(**reader.select_missing(supplied)))

    @property
    def _shares(self) -> Shares:
        """The division of the images of each class under `protocol.splits=closed_set`."""
        protocol = self.config.protocol
        return Shares(protocol.test_share, protocol.validation_share, protocol.split_seed)

    def _identify_content(self, index: ImageIndex) -> ImageIndex:
        """Returns the index of a user's images or features with a hash of their content."""
        root = Path(self.config.data.root)
        if index.features is not None:
            return replace(index, content=hash_features(root))
        folder = root if root.is_dir() else root.parent
        return exclude_undecodable(index, self.config.data.skip_corrupt, folder / ".cache")

    def _check_width(self, width: int) -> None:
        """Raises UserError if the network takes features of another width."""
        channels = self.config.backbone.get("channels", width)
        if channels != width:
            raise UserError(
                f"data.root: features of {self.config.data.root} have {width} numbers, the network "
                f"takes {channels} (backbone.channels)"
            )

    def _is_other_count(self, reader: dict[str, Any]) -> bool:
        """Returns whether the expected counts differ from those of the benchmark."""
        published = signature(import_target(reader["_target_"], "data.reader")).parameters
        names = {"images", "classes"} & published.keys() & reader.keys()
        return any(reader[name] != published[name].default for name in names)

    def source(self, index: ImageIndex) -> ImageSource | None:
        """The cache of `data.cache`, or None to decode images at every access."""
        if index.features is not None:
            return None
        return open_image_source(index, self.config.data.cache, self.config.data.root)

    def fetch_weights(self) -> bool:
        """Downloads the weights of the backbone, unless they are there; returns True.

        Raises:
            UserError: there are no such weights, or no address has them.
            KeyboardInterrupt, RunStopped: at a signal; the same command continues a download.
        """
        with raise_on_signals():  # a download takes longer than a step
            self._backbone_class().fetch_weights(**self._backbone_options())
        return True  # for `run_main_first`

    def check_weights(self) -> None:
        """Downloads the weights of the backbone, and loads a file that the user has named.

        Raises:
            UserError: see `fetch_weights`, or the file is damaged or of another network.
        """
        self.fetch_weights()
        is_named = self.config.backbone.get("weights") not in (None, "none", "imagenet")
        if is_named:
            self.constructor("backbone")()

    def describe_weights(self) -> WeightFile | None:
        """Returns the file of the backbone's weights, without a request; None: no file."""
        return self._backbone_class().describe_weights(**self._backbone_options())

    def _backbone_class(self) -> type[Backbone]:
        """Returns the class of the network; `Backbone` itself, which needs no file, for others."""
        constructor = self.constructor("backbone")
        target: Any = import_target(constructor.node["_target_"], "backbone")
        is_ours = isinstance(target, type) and issubclass(target, Backbone)
        return target if is_ours and not constructor.problems else Backbone

    def _backbone_options(self) -> dict[str, Any]:
        options = {**self.constructor("backbone").arguments}
        del options["_target_"]
        return options

    def embedder(self) -> Embedder:
        """The network, with the weights of its backbone.

        Raises:
            ConfigError: an option has an invalid value, or two options exclude each other.
            UserError: there are no such weights.
        """
        backbone = complete(self.constructor("backbone")(), self.config.transform.size)
        try:
            return self.constructor("embedder")(backbone=backbone)
        except UserError as error:
            raise ConfigError(str(error).splitlines()) from error

    def network(self, train: Subset, world: ProcessGroup, device: torch.device) -> Embedder:
        """The embedder on its device, as the processes of `world` train it on `train`.

        Raises:
            UserError: the device does not support an option.
        """
        set_precision(self.config.precision, device)
        embedder = world.run_main_first(self.embedder)
        part = self.config.backbone.get("train", "all")
        check_training_mode(embedder.backbone, self.config.transform.size, part != "none")
        if isinstance(embedder.backbone, Identity) and train.index.features is not None:
            plain = train.index.features.plain[train.rows]
            embedder.backbone.fit(torch.from_numpy(plain.astype(np.float32, copy=False)))
        if part == LORA:
            self.add_adapters(embedder)
        else:
            freeze_backbone(embedder, part)
        if self.config.backbone.get("checkpointing") and uses_batch_statistics(embedder):
            raise ConfigError(
                [
                    "backbone.checkpointing: BatchNorm statistics would take in each batch twice; "
                    "add embedder.freeze_batch_norm=true, or save memory by data.micro_batch"
                ]
            )
        embedder.to(device)
        if self.config.channels_last:
            embedder.backbone.to(memory_format=torch.channels_last)
        if world.size > 1 and not embedder.freeze_batch_norm:
            synchronize_batch_norm(embedder, device)
            if part != "all":  # other layers stand in the place of the frozen ones
                embedder.keep_in_evaluation_mode(find_frozen(embedder.backbone))
        compile_backbone(embedder, self.config.compile)
        return embedder

    def add_adapters(self, embedder: Embedder) -> None:
        """Adds the adapters of `backbone.train=lora` to a network on the CPU; see `lora.py`."""
        backbone = self.config.backbone
        has_file = backbone.get("weights") not in (None, "none")
        add_adapters(embedder, **backbone.get("lora", {}), has_file=has_file)

    def transforms(self, embedder: Embedder) -> Transforms:
        """Crops and flips, in the size and colors of the backbone's input."""
        if isinstance(embedder.backbone, Identity):  # of features
            return Transforms(nn.Identity(), nn.Identity(), nn.Identity())
        t, spec = self.config.transform, embedder.input
        size = t.size or spec.size
        to_input = transforms.ToInput(spec.mean, spec.std, spec.channel_order, spec.scale)
        if t.target is not None:
            of_training, of_test = (self._custom_transform(train, size) for train in (True, False))
            return Transforms(of_training, of_test, to_input)
        options = t.model_dump(include={"resize", "scale", "ratio", "flip", "padding", "degrees"})
        options["interpolation"] = spec.interpolation
        resize = resolve_test_resize(t.test_resize, size, spec.crop_share)
        return Transforms(
            train=transforms.train_transform(t.augmentation, size, **options),
            test=transforms.eval_transform(size, resize=resize, interpolation=spec.interpolation),
            to_input=to_input,
        )

    def _custom_transform(self, train: bool, size: int | None) -> CustomTransform:
        """The transform of the user, of training or of test images."""
        build = self.constructor("transform.args")
        function = build(**build.select_missing({"train": train, "size": size}))
        return CustomTransform(function, train)

    def sampler(self, labels: np.ndarray) -> Callable[[int], Iterable[Any]]:
        """Returns what builds the sampler of the user, or of a library, for a seed.

        Args:
            labels: one label 0..C−1 per training image.
        """
        data = self.config.data
        supplied: dict[str, Any] = {
            "labels": labels,
            "batch_size": data.batch_size,
            "data_source": range(len(labels)),
        }
        if data.images_per_class is not None:
            supplied |= dict.fromkeys(("images_per_class", "m"), data.images_per_class)
        node: Any = {**cast(dict[str, Any], data.sampler), "_partial_": True}
        build = Constructor(node, "data.sampler", SUPPLIED["data.sampler"], Callable, "a sampler")
        create = build(**build.select_missing(supplied))
        with_seed = build.select_missing({"seed": 0})

        def build_sampler(seed: int) -> Iterable[Any]:
            return create(**dict.fromkeys(with_seed, seed))

        return build_sampler

    def augmentations(self) -> Augmentations:
        """The augmentations after crop and flip.

        Raises:
            ConfigError: one does not exist, or rejects its options.
        """
        steps: list[tuple[str, ImageFunction]] = []
        for number, choice in enumerate(self.config.transform.then):
            name = f"transform.then[{number}]"
            if isinstance(choice, str):
                steps.append((name, NAMED[choice]()))
                continue
            description = "an augmentation, which can be called with an image"
            steps.append((name, Constructor(choice, name, (), Callable, description)()))
        return Augmentations(steps)

    def method(self, num_classes: int, embedding_size: int) -> Method:
        """The method with its loss, miner and their parameters.

        Raises:
            ConfigError: one of them rejects its options, or another one.
        """
        sizes = dict.fromkeys(CLASSES.split(), num_classes)
        sizes |= dict.fromkeys(WIDTH.split(), embedding_size)
        build_loss, build_method = self.constructor("loss"), self.constructor("method")
        try:
            loss = build_loss(**build_loss.select_missing(sizes))
            miner = None
            if self.config.loss.get("miner"):
                miner = self.constructor("loss.miner")()
            if self._compares_clipped:
                for part in (loss, miner):
                    if isinstance(part, nn.Module):
                        disable_normalization(part)
            supplied = build_method.select_missing({"loss": loss, "miner": miner, **sizes})
            if miner is not None and "miner" not in supplied:
                name = build_method.node["_target_"]
                raise ConfigError([f"loss.miner: {name} takes no argument 'miner'; leave it out"])
            return build_method(**supplied)
        except UserError as error:
            raise ConfigError(str(error).splitlines()) from error

    @property
    def _compares_clipped(self) -> bool:
        """Whether a pair loss compares clipped vectors without normalizing them (ccp, section 4.4).

        Losses of pytorch-metric-learning would normalize the vectors again: a plain baseline would
        then be trained with unit vectors, but scored with clipped ones, unlike ccp. Mixing methods
        and losses with proxies use unit vectors throughout.
        """
        c, plain = self.config, f"{Plain.__module__}.{Plain.__qualname__}"
        clipped = c.embedder.get("normalize") == "clipped"
        return clipped and c.method["_target_"] == plain and c.loss["batch_kind"] == "pair"

    def optimizer(
        self, embedder: nn.Module, method: nn.Module, steps_per_epoch: int
    ) -> tuple[Optimizer, LRScheduler | None]:
        """The optimizer over all parameters, and its learning-rate schedule.

        Raises:
            ConfigError: there is no such optimizer or group, or one rejects its options.
            UserError: see `parameter_groups`.
        """
        optim = self.config.optim
        names = {"lr", "weight_decay", "loss_lr", "loss_lr_ratio", "groups", "layer_decay"}
        groups = parameter_groups(embedder, method, **optim.model_dump(include=names))
        if optim.warmup_epochs and not _trains_outside_backbone(embedder, method):
            raise ConfigError(
                [
                    f"optim.warmup_epochs: the first {count_of(optim.warmup_epochs, 'epoch')} "
                    f"would train nothing: there are parameters in the backbone only; set it to 0"
                ]
            )
        optimizer = build_optimizer(import_target(optim.target, "optim"), groups, optim.args)
        schedule = self._schedule(optimizer, steps_per_epoch)
        if optim.warmup_steps:
            schedule = warm_up(optimizer, schedule, optim.warmup_steps)
        return optimizer, schedule

    def _schedule(self, optimizer: Optimizer, steps_per_epoch: int) -> LRScheduler | None:
        """The schedule after a warm-up of the rates; None: the rates are constant."""
        optim, epochs = self.config.optim, self.config.protocol.epochs
        length, epoch = epochs, 1
        if optim.schedule_unit == "steps":
            length, epoch = epochs * steps_per_epoch - optim.warmup_steps, steps_per_epoch
        node = named_schedule(optim.schedule, length, optim.schedule_args, epoch)
        if node is None:
            return None
        option = "optim.schedule"
        target = import_target(node["_target_"], option)
        if optim.lr > 0:
            scale_rates(node, target, optimizer, optim.lr)
        schedule = Constructor(node, option, SUPPLIED[option], *REQUIRED[option])
        defaults = schedule.select_missing(default_arguments(target))
        return schedule(optimizer=optimizer, **defaults)


def _trains_outside_backbone(embedder: nn.Module, method: nn.Module) -> bool:
    """Returns whether head, loss or method have parameters that are trained."""
    in_backbone = set(embedder.get_submodule("backbone").parameters())
    parameters = {*embedder.parameters(), *method.parameters()} - in_backbone
    return any(parameter.requires_grad for parameter in parameters)


def fetch_weights(backbone: str) -> bool:
    """Downloads the weights of a network, unless they are there, and loads them.

    Args:
        backbone: a file of `configs/backbone`, or `timm:<model>`.

    Returns:
        Whether the network has a file of weights.

    Raises:
        ConfigError: there is no such network.
        UserError: the weights cannot be had.
    """
    if f"{backbone}:" == TIMM:
        raise ConfigError([f"--backbone {backbone}: name the network, --backbone {TIMM}<model>"])
    words = ["data=digits", f"backbone={backbone}"]
    if backbone.startswith(TIMM):
        words[1:] = ["backbone=timm", f"backbone.model={backbone.removeprefix(TIMM)}"]
    cfg = compose_config("train", words)
    builder = Builder(check(cfg))
    builder.constructor("backbone")()
    return builder.describe_weights() is not None
