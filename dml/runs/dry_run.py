"""A dry run before a run has a folder or a batch: the objects of the config, on dummy images.

Types and ranges do not show what a constructor rejects, when an optimizer divides by zero, or
whether a loss fails with its arguments; one step on eight dummy images does, in a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError, describe_failure, first_line, is_out_of_memory
from dml.data.image_index import ImageIndex
from dml.models.backbones import Backbone, InputSpec, TimmBackbone
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.models.timm_networks import inspect_network
from dml.runs.build import Builder
from dml.runs.context import list_jobs
from dml.training.device import resolve_device
from dml.training.interfaces import Method
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup

MAX_EPOCHS = 10_000  # of a schedule; more are a typing error
CALLED_AS = {
    "loss": "loss(embeddings, labels[, indices_tuple])",
    "method": "method(embedder, images, labels)",
}
CLASSES, PER_CLASS, SIDE, SIZE = 2, 4, 8, 8  # of the dummy images and their embeddings


def dry_run(
    builder: Builder,
    read_index: Callable[[], ImageIndex] | None = None,
    world: ProcessGroup = SINGLE_PROCESS,
) -> None:
    """Builds and tries loss, method, head, optimizer and schedule; loads no weights.

    Args:
        builder: of the run.
        read_index: returns the dataset. Only a user's own loss is tried with its number of training
            classes, and on the run's device, since its code may depend on both; thousands of
            classes would take others their time.
        world: the processes of the run.

    Raises:
        ConfigError: with every option that does not fit its constructor; else with the first error
            of a constructor or of the step.
        UserError: see `Builder.optimizer`.
    """
    if problems := list(builder.find_problems()):
        raise ConfigError(problems)
    _try_backbone(builder.config.backbone)
    _try_head(builder)
    size = _embedding_size(builder.config)
    classes, device = CLASSES, torch.device("cpu")
    if builder.has_own_loss and read_index is not None:
        classes = list_jobs(builder.config, read_index())[0].train.num_classes
        device = resolve_device(builder.config.device, world)
    method = builder.method(classes, size).to(device)
    with torch.random.fork_rng(devices=[]):
        _try_method(builder, method, classes, size, device)
    _try_optimizer(builder, method.cpu())


def _embedding_size(config: Config) -> int:
    """The embedding size of the run; a small one if the network determines it."""
    sizes = [node.get("embedding_size") for node in (config.loss, config.method)]
    sizes.append(config.embedder.get("size"))
    return next((size for size in sizes if isinstance(size, int)), SIZE)


def _try_backbone(node: dict[str, Any]) -> None:
    """Finds the features of a network of timm, which takes neither weights nor memory."""
    if node["_target_"] == f"{TimmBackbone.__module__}.{TimmBackbone.__qualname__}":
        inspect_network(node["model"], node["input_size"])


def _try_head(builder: Builder) -> None:
    """Builds the head on a backbone of the width that it requires."""
    node = builder.config.embedder
    size, headless = node.get("size"), node.get("head") == "none"
    backbone = Backbone()
    backbone.channels, backbone.kind = size if headless and size else 8, "maps"
    backbone.native_channels = backbone.channels
    backbone.input = InputSpec(size=None)
    builder.attach_head(backbone)


def _try_method(
    builder: Builder, method: Method, classes: int, size: int, device: torch.device
) -> None:
    """Computes a loss and its gradients with a dummy network.

    A ValueError of the method may be due to the dummy batch, and is left to the run.
    """
    normalize = builder.config.embedder["normalize"]
    network = Embedder(SmallCNN(width=1), size, normalize=normalize).to(device)
    labels = torch.tensor([0, classes - 1]).repeat_interleave(PER_CLASS).to(device)

    def pool(per_class: int, number: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        pool_labels = torch.arange(classes, device=device).repeat_interleave(per_class)
        return [(torch.rand(len(pool_labels), 3, SIDE, SIDE, device=device), pool_labels)]

    try:
        method.attach(pool)
        images = torch.rand(len(labels), 3, SIDE, SIDE, device=device)
        for _ in range(2):  # a loss may keep the graph of the first step, and fail in the second
            loss, _ = method(network, images, labels)
            _check_value(loss, _option_of(method), classes)
            loss.backward()
    except ConfigError:
        raise
    except (ValueError, UserError):
        return
    except Exception as error:  # of any class, by a custom loss or miner
        if is_out_of_memory(error):
            raise
        option = _option_of(method)
        arguments = f", called as {CALLED_AS[option]}" if isinstance(error, TypeError) else ""
        describe = builder.describe_loss_failure if option == "loss" else describe_failure
        reason = describe(error)
        raise ConfigError([f"{option}: it fails on a batch{arguments}: {reason}"]) from error


def _check_value(loss: Any, option: str, classes: int) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        tensor = isinstance(loss, torch.Tensor)
        got = f"a tensor of shape {list(loss.shape)}" if tensor else repr(loss)
        wanted = f"one number, a 0-d tensor, or logits for the {classes} classes"
        raise ConfigError([f"{option}: must return {wanted}; returned {got}"])
    if not loss.requires_grad:
        raise ConfigError([f"{option}: its value has no gradient; is it detached?"])


def _option_of(method: nn.Module) -> str:
    """Returns the option to blame: `loss`, unless the method is a custom one."""
    return "loss" if type(method).__module__.startswith("dml.") else "method"


def _try_optimizer(builder: Builder, method: nn.Module) -> None:
    """Steps optimizer and schedule as the run would, on a dummy network.

    Constructors of schedules check little: one with `step_size: 0` fails at the end of the first
    epoch, one for fewer epochs at the end of its last.
    """
    config = builder.config
    network = nn.Module()
    network.backbone = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    network.head = nn.Linear(1, 1)
    optimizer, schedule = builder.optimizer(network, method)
    for name, values in config.optim.groups.items():
        for key in values:
            if key not in optimizer.defaults:
                raise ConfigError(
                    [
                        f"optim.groups.{name}.{key}: {type(optimizer).__name__} takes no such "
                        f"option; its groups have {', '.join(sorted(optimizer.defaults))}"
                    ]
                )
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    option = "optim.groups" if config.optim.groups else "optim.args"
    try:
        optimizer.step()
        if schedule is not None:
            option = "optim.schedule"
            score = (0.0,) if isinstance(schedule, ReduceLROnPlateau) else ()
            for _ in range(min(config.protocol.epochs, MAX_EPOCHS)):
                schedule.step(*score)
    except Exception as error:  # of any class, by torch or a custom optimizer
        raise ConfigError(
            [f"{option}: these values make it fail in use: {first_line(error)}"]
        ) from error
