"""The options of `dml embed` and of `dml.embed`: those without effect are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dml.config.explain import compose_config, list_options
from dml.config.stored_network import HUB, TIMM
from dml.core.errors import ConfigError, UserError, nearest

OF_IMAGES = ("data.background", "data.max_pixels")  # act on images of any kind
OF_TIMM = ("backbone", "embedder", "transform", "precision")
# Of a dataset, these act on training or on the pace alone.
NOT_OF_IMAGES = (
    "data.name", "data.sampler", "data.pair_sampler", "data.batch_size", "data.micro_batch",
    "data.images_per_class", "data.categories_per_batch", "data.eval_batch_size", "data.workers",
    "data.cache", "data.label_noise", "data.identified_by",
)  # fmt: skip


def check_options(network: str | Path, images: object, options: Sequence[str]) -> None:
    """Checks that each option of `dml.embed` acts on the network or on the images.

    Args:
        network: a folder, whose network takes no options, or `timm:<model>`.
        images: a dataset (`data=cub`) takes options of its node.
        options: `name=value`.

    Raises:
        ConfigError: a line for each option without effect.
    """
    nodes: list[str] = []
    if str(network).startswith(TIMM):
        nodes += OF_TIMM
    if isinstance(images, str) and images.startswith("data="):
        nodes.append("data")
    problems = []
    names: list[str] = []
    for option in options:
        name, equals, _ = option.partition("=")
        name = name.lstrip("+")
        if not equals or not name or name.startswith("~"):
            problems.append(f"{option or repr(option)}: not of the form option=value")
        elif name in names:
            problems.append(f"{name}: given twice; write it once")
        else:
            problems += _find_no_effect(option, name, images, nodes)
        names.append(name)
    if problems:
        raise ConfigError(problems)


def _find_no_effect(option: str, name: str, images: object, nodes: Sequence[str]) -> Iterator[str]:
    """Yields the problem of an option that does not act."""
    if name == "data":
        yield f"data: images are {images}; a dataset stands in their place, such as {option}"
    elif not _acts(name, nodes):
        yield f"{name}: has no effect here{_advise(name, nodes)}"


def _acts(name: str, nodes: Sequence[str]) -> bool:
    """Returns whether an option acts on images, or on one of the nodes of a network or dataset."""
    if name in OF_IMAGES:
        return True
    node = name.partition(".")[0]
    return node in nodes and name not in NOT_OF_IMAGES


def _advise(name: str, nodes: Sequence[str]) -> str:
    """Returns the nearest option that acts, or what takes such options."""
    known = list(OF_IMAGES)
    if nodes:
        options = list_options(compose_config("evaluate", ["backbone=timm", "backbone.model=x"]))
        known += [option for option in options if _acts(option, nodes)]
    hint = nearest(name, known)
    node = name.partition(".")[0]
    if hint:
        return hint
    if node in OF_TIMM and node not in nodes:
        return "; the network of a folder is as it was trained"
    if node == "data" and node not in nodes:
        return "; it is an option of a dataset, and images are files"
    return "; leave it out"


def check_model(source: str | Path, repeat: int | None, fold: int | None, weights: str) -> None:
    """Checks that a model is chosen only where there are several.

    Args:
        source: run folder, exported folder, or `timm:<model>`.
        repeat, fold: numbers of the model; None: not chosen.
        weights: name of the file in an exported folder.

    Raises:
        UserError: there is a single network without number.
    """
    if repeat is None and fold is None:
        return
    name = "fold" if repeat is None else "repeat"
    if str(source).startswith((TIMM, HUB)):
        raise UserError(f"{name}: {source} is a single network; leave it out")
    if Path(source, weights).is_file():
        raise UserError(f"{name}: {source} is an export of a single model; leave it out")
