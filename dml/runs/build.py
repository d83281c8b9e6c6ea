"""The objects that a config describes: data, network, method, optimizer, tracker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dml.config.schema import Config, resolve_test_resize
from dml.config.signatures import BACKBONE_KEYS, LOSS_KEYS, METHOD_KEYS
from dml.core.errors import ConfigError, UserError
from dml.data import transforms
from dml.data.cache import open_image_source
from dml.data.image_check import exclude_undecodable
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.protocol_splits import merge_query_and_gallery
from dml.methods.plain import Plain
from dml.methods.reference_losses import disable_normalization
from dml.models.embedder import Embedder, compile_backbone
from dml.models.plain_network import complete
from dml.runs.constructor import Constructor
from dml.tracking import Tracker
from dml.training.device import set_precision
from dml.training.optim import GroupOptions, build_optimizer, named_schedule, parameter_groups
from dml.training.process_group import ProcessGroup
from dml.training.sync_batch_norm import synchronize_batch_norm

# Supplied to losses and methods that accept them, under the names of other codebases too.
CLASSES = "num_classes num_class n_classes n_class nb_classes class_num classes out_features"
WIDTH = (
    "embedding_size embedding_dim embed_dim emb_dim feat_dim feature_dim in_features sz_embed "
    "sz_embedding descriptors_dim"
)
SIZES = (*CLASSES.split(), *WIDTH.split())


@dataclass(frozen=True)
class Transforms:
    """The transforms of an image on its way into the network."""

    train: nn.Module
    test: nn.Module
    to_input: nn.Module


class Builder:
    """Builds the objects of a run from its config.

    The options of each node are bound to their constructor once, at first use; the dry run and
    every model of the run use the same constructors.
    """

    def __init__(self, config: Config) -> None:
        self.config = config

    @cached_property
    def _loss(self) -> Constructor:
        return Constructor(self.config.loss, "loss", LOSS_KEYS, SIZES)

    @cached_property
    def _miner(self) -> Constructor | None:
        node = self.config.loss.get("miner")
        return None if node is None else Constructor(node, "loss.miner")

    @cached_property
    def _method(self) -> Constructor:
        return Constructor(self.config.method, "method", METHOD_KEYS, ("loss", "miner", *SIZES))

    @cached_property
    def _backbone(self) -> Constructor:
        return Constructor(self.config.backbone, "backbone", BACKBONE_KEYS)

    @cached_property
    def _embedder(self) -> Constructor:
        target = f"{Embedder.__module__}.{Embedder.__qualname__}"  # the only class of embedders
        node = {**self.config.embedder, "_target_": target}
        return Constructor(node, "embedder", supplied=("backbone",))

    @cached_property
    def _reader(self) -> Constructor:
        return Constructor(self.config.data.reader, "data.reader", supplied=("root",))

    @cached_property
    def _tracker(self) -> Constructor:
        return Constructor(self.config.tracking, "tracking")

    @cached_property
    def _optimizer(self) -> Constructor:
        node = {**self.config.optim.args, "_target_": self.config.optim.target}
        return Constructor(node, "optim.args", supplied=("params", "lr", "weight_decay"))

    @cached_property
    def _schedule(self) -> Constructor | None:
        optim, epochs = self.config.optim, self.config.protocol.epochs
        if optim.schedule is None:
            return None
        node = named_schedule(optim.schedule, epochs) | optim.schedule_args
        return Constructor(node, "optim.schedule", (), ("optimizer",))

    def find_problems(self) -> Iterator[str]:
        """Yields a line for every option that does not fit its constructor."""
        constructors = (
            *(self._loss, self._miner, self._method, self._backbone, self._embedder),
            *(self._reader, self._tracker, self._optimizer, self._schedule),
        )
        for constructor in constructors:
            for line in [] if constructor is None else constructor.problems:
                yield line.replace("optim.args._target_", "optim._target_")

    def tracker(self) -> Tracker:
        """The tracker."""
        return self._tracker()

    def index(self) -> ImageIndex:
        """The index of the dataset; own images are decoded once, to check them."""
        data = self.config.data
        index = self._reader(**self._reader.select_missing({"root": data.root}))
        if data.identified_by == "place":
            folder = Path(data.root) if Path(data.root).is_dir() else Path(data.root).parent
            index = exclude_undecodable(index, data.skip_corrupt, folder / ".cache")
        index = replace(index, apply_orientation=data.exif_orientation)
        return merge_query_and_gallery(index) if data.query_gallery == "none" else index

    def source(self, index: ImageIndex) -> ImageSource | None:
        """The cache of `data.cache`, or None to decode images at every access."""
        return open_image_source(index, self.config.data.cache, self.config.data.root)

    def embedder(self) -> Embedder:
        """The network, with the weights of its backbone.

        Raises:
            ConfigError: an option has an invalid value, or two options exclude each other.
            UserError: there are no such weights.
        """
        backbone = complete(self._backbone(), self.config.transform.size)
        return self.attach_head(backbone)

    def attach_head(self, backbone: nn.Module) -> Embedder:
        """The embedder on a backbone; see `embedder`."""
        try:
            return self._embedder(backbone=backbone)
        except UserError as error:
            raise ConfigError(str(error).splitlines()) from error

    def network(self, world: ProcessGroup, device: torch.device) -> Embedder:
        """The embedder on its device, as the processes of `world` train it.

        Raises:
            UserError: the device does not support an option.
        """
        set_precision(self.config.precision, device)
        embedder = world.run_main_first(self.embedder).to(device)
        if self.config.channels_last:
            embedder.backbone.to(memory_format=torch.channels_last)
        if world.size > 1 and not embedder.freeze_batch_norm:
            synchronize_batch_norm(embedder, device)
        compile_backbone(embedder, self.config.compile, device)
        return embedder

    def transforms(self, embedder: Embedder) -> Transforms:
        """Crops and flips, in the size and colors of the backbone's input."""
        t, spec = self.config.transform, embedder.input
        size = t.size or spec.size
        train = transforms.train_transform(
            t.augmentation,
            size,
            resize=t.resize,
            scale=t.scale,
            ratio=t.ratio,
            flip=t.flip,
            padding=t.padding,
            degrees=t.degrees,
        )
        resize = resolve_test_resize(t.test_resize, size, spec.crop_share)
        test = transforms.eval_transform(size, resize=resize)
        return Transforms(
            train=transforms.set_interpolation(train, spec.interpolation),
            test=transforms.set_interpolation(test, spec.interpolation),
            to_input=transforms.ToInput(spec.mean, spec.std, spec.channel_order, spec.scale),
        )

    def method(self, num_classes: int, embedding_size: int) -> nn.Module:
        """The method with its loss, miner and their parameters.

        Raises:
            ConfigError: one of them rejects its options, or another one.
        """
        sizes = dict.fromkeys(CLASSES.split(), num_classes)
        sizes |= dict.fromkeys(WIDTH.split(), embedding_size)
        try:
            loss = self._loss(**self._loss.select_missing(sizes))
            miner = None if self._miner is None else self._miner()
            if self._compares_clipped:
                for part in (loss, miner):
                    if isinstance(part, nn.Module):
                        disable_normalization(part)
            supplied: dict[str, Any] = {"loss": loss, "miner": miner}
            return self._method(**supplied, **self._method.select_missing(sizes))
        except UserError as error:
            raise ConfigError(str(error).splitlines()) from error

    @property
    def has_own_loss(self) -> bool:
        """True if the loss is neither of this package nor of pytorch-metric-learning."""
        return not self.config.loss["_target_"].startswith(("dml.", "pytorch_metric_learning."))

    def describe_loss_failure(self, error: BaseException) -> str:
        """Returns why the loss failed in use, on one line."""
        return self._loss.describe(error)

    @property
    def _compares_clipped(self) -> bool:
        """True if pairs are compared by the lengths that the normalizer left (ccp, section 4.4).

        Losses of pytorch-metric-learning would normalize once more, and a plain baseline would be
        trained in another space than ccp and than the one it is scored in. Mixing methods keep unit
        vectors for the clean loss as for the mixed one; proxies have no such lengths.
        """
        config = self.config
        clipped = config.embedder.get("normalize") == "clipped"
        plain = config.method["_target_"] == f"{Plain.__module__}.{Plain.__qualname__}"
        return clipped and plain and config.loss["batch_kind"] == "pair"

    def optimizer(
        self, embedder: nn.Module, method: nn.Module
    ) -> tuple[Optimizer, LRScheduler | None]:
        """The optimizer over all parameters, and its learning-rate schedule.

        Raises:
            ConfigError: there is no such optimizer or group, or one rejects its options.
            UserError: see `parameter_groups`.
        """
        options = {f.name: getattr(self.config.optim, f.name) for f in fields(GroupOptions)}
        groups = parameter_groups(embedder, method, GroupOptions(**options))
        optimizer = build_optimizer(self._optimizer.target, groups, self.config.optim.args)
        schedule = None if self._schedule is None else self._schedule(optimizer=optimizer)
        return optimizer, schedule
