"""Tries what the config describes before a run has a folder or a batch.

Types and ranges do not tell what a constructor refuses, an optimizer divides by, or a loss makes of
its arguments; a step on eight images of no meaning does, in a moment.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
from torch import nn

from dml.config.schema import Config
from dml.config.signatures import LOSS_KEYS, METHOD_KEYS
from dml.config.signatures import find_argument_problems as find_problems
from dml.core.errors import ConfigError, UserError, first_line, is_out_of_memory
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.build import attach_head, build_method, build_training, embedder_node

EPOCHS_TRIED = 10_000  # more than a run has, except by a slip of the keyboard
CLASSES, PER_CLASS, SIDE, SIZE = 2, 4, 8, 8  # of the images and embeddings of a trial


def check(config: Config) -> None:
    """Refuses what constructors refuse, before a run has a folder or a batch; builds no network.

    Raises:
        ConfigError: every argument that does not fit, of loss, method, network, optimizer, reader
            and tracker; else the first refusal of one of them.
        UserError: see `build_training`.
    """
    sizes = ("num_classes", "embedding_size")
    wrong = list(find_problems(config.loss, "loss", *LOSS_KEYS, given=sizes))
    if config.loss.get("miner") is not None:
        wrong += find_problems(config.loss["miner"], "loss.miner")
    wrong += find_problems(config.method, "method", *METHOD_KEYS, given=("loss", "miner", *sizes))
    wrong += find_problems(config.backbone, "backbone")
    wrong += find_problems(embedder_node(config), "embedder", given=("backbone",))
    wrong += find_problems(config.data.reader, "data.reader")
    wrong += find_problems(config.tracking, "tracking")
    optimizer = {**config.optim.args, "_target_": config.optim.target}
    given = ("params", "lr", "weight_decay")
    wrong += [
        line.replace("optim.args._target_", "optim._target_")
        for line in find_problems(optimizer, "optim.args", given=given)
    ]
    if config.optim.schedule is not None:
        wrong += find_problems(config.optim.schedule, "optim.schedule", given=("optimizer",))
    if wrong:
        raise ConfigError(wrong)
    _try_embedder(config)
    size = _embedding_size(config)
    method = build_method(config, CLASSES, size)
    with torch.random.fork_rng(devices=[]):
        _try_method(config, method, size)
    _try_optimizer(config, method)


def _embedding_size(config: Config) -> int:
    """What loss and method say of it themselves, else a small one."""
    said = [node.get("embedding_size") for node in (config.loss, config.method)]
    return next((size for size in said if isinstance(size, int)), SIZE)


def _try_method(config: Config, method: nn.Module, size: int) -> None:
    """A loss with its gradients, of a network of no meaning.

    What the method refuses by a ValueError may be due to the batch of this trial: the run tells.
    """
    network = Embedder(SmallCNN(width=1), size, normalize=config.embedder["normalize"])
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)

    def images(per_class: int, number: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        owners = torch.arange(CLASSES).repeat_interleave(per_class)
        return [(torch.rand(len(owners), 3, SIDE, SIDE), owners)]

    try:
        method.attach(images)  # type: ignore[operator]
        loss, _ = method(network, torch.rand(len(labels), 3, SIDE, SIDE), labels)
        loss.backward()
    except (ValueError, UserError):
        return
    except Exception as error:  # of losses and miners of anybody's own
        if is_out_of_memory(error):
            raise
        what = "loss" if type(method).__module__.startswith("dml.") else "method"
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        said = f"{type(error).__name__}: {first_line(error)} ({place})"
        raise ConfigError([f"{what}: these values make it fail on a batch: {said}"]) from error


def _try_embedder(config: Config) -> None:
    """Builds the head on a backbone that is as wide as the head wants it."""
    size, headless = config.embedder.get("size"), config.embedder.get("head") == "none"
    network = nn.Module()
    network.channels, network.kind = size if headless and size else 8, "maps"  # type: ignore[assignment]
    network.input = None  # type: ignore[assignment]
    attach_head(config, network)


def _try_optimizer(config: Config, method: nn.Module) -> None:
    """Steps the optimizer and its schedule as the run would, on a network of no meaning.

    Learning-rate schedules check little when they are built: one with `step_size: 0` fails at the
    end of the first epoch, one made for fewer epochs at the end of its last.
    """
    network = nn.Module()
    network.backbone = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    network.head = nn.Linear(1, 1)
    optimizer, schedule = build_training(config, network, method)
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
    what = "optim.groups" if config.optim.groups else "optim.args"
    try:
        optimizer.step()
        if schedule is not None:
            what = "optim.schedule"
            takes_score = isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau)
            for _ in range(min(config.protocol.epochs, EPOCHS_TRIED)):
                schedule.step(*((0.0,) if takes_score else ()))
    except Exception as error:  # of torch, and of optimizers of anybody's own
        raise ConfigError(
            [f"{what}: these values make it fail in use: {first_line(error)}"]
        ) from error
