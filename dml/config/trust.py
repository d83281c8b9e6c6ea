"""What a file of others may name: the check of every `_target_` before anything is imported.

Typed on the command line, or in a config folder that it names, any class or function is used: it is
the user's own program. Read from a file (run folder, export, `best.yaml`, `params=`), a name is
used without a word only if it comes with this package, or is a class of the packages in `OPEN`,
whose classes neither run a file nor call what they are given. Anything else needs `trust=true`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dml.config.options import is_below
from dml.config.own_code import find_file
from dml.core.errors import ConfigError
from dml.core.installation import CONFIGS
from dml.core.secrets import MASK

TARGET = "_target_"
NO_TARGET = "transform._target_"  # which is null where no class is chosen
OPEN = (
    "dml.losses", "dml.methods", "dml.models",
    "torch.optim", "torch.optim.lr_scheduler", "torchvision.transforms.v2",
    "pytorch_metric_learning.losses", "pytorch_metric_learning.miners",
    "pytorch_metric_learning.distances", "pytorch_metric_learning.reducers",
    "pytorch_metric_learning.regularizers", "pytorch_metric_learning.samplers",
)  # fmt: skip
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?", re.ASCII)
# Values by which timm, or a network of ours, fetches what another file or server holds.
FETCHED = re.compile(
    r"(\w[\w+.-]*:[\\/]{2}|(https?|ftp|file|hf|hf[-_]hub|local-dir):)", re.IGNORECASE
)
IGNORED = re.compile(r"[\s\x00-\x20]+")  # by readers of addresses, wherever it stands
WITH_WEIGHTS = ("TimmBackbone", "BNInception")  # of dml.models; by default they download
WEIGHTS = "backbone.weights"
OF_TRACKERS = ("tracking.settings.", "tracking.uri")
OF_HYDRA = re.compile(r"hydra(\W.*)?")
# Nodes whose texts are shown or compared, and never opened; those that only a training run opens.
NOT_OPENED = ("name", "note", "experiment", "code", "outputs")
OF_TRAINING = ("search", "space", "tracking")
ALLOW = "if you trust it, add --trust (trust=true for train and evaluate, trust=True in Python)"


class Named(NamedTuple):
    """A name that a file gives.

    Attributes:
        option: dotted name of the value.
        target: the dotted name of a class or function.
    """

    option: str
    target: str


def check_content(
    content: dict[str, Any],
    source: Path,
    trust: bool = False,
    trains: bool = True,
    typed: Collection[str] = (),
    loads_weights: bool = False,
) -> None:
    """Checks the content of a file; nothing that it names is imported.

    Args:
        content: nested dictionaries and lists of plain values.
        source: the file, for messages.
        trust: the user trusts the file: any class or function may be named.
        trains: texts by which a training run would fetch weights or reach a server are checked.
        typed: options whose values the command line replaces.
        loads_weights: the pretrained weights of the network are loaded also without a training run.

    Raises:
        ConfigError: what is never allowed in a file, or a name that needs `trust`.
    """
    for option, key, value in _walk(content):
        problem = _find_forbidden(key, value)
        if problem and not _is_no_target(option, value):
            raise ConfigError([f"{source}: {option}: {problem}"])
    if trust:
        return
    outside = [named for named in find_named(content) if not is_allowed(named.target)]
    if outside:
        raise ConfigError([_describe(outside, source)])
    for option, reason in _find_fetched(content, trains, trains or loads_weights):
        if option not in typed:
            raise ConfigError([f"{source}: {option}: {reason}; {ALLOW}"])


def is_allowed(target: str) -> bool:
    """Returns whether a file may name a class or function without a word of the user.

    Only packages of `OPEN`, which are installed with this one, are imported.
    """
    return target in shipped_targets() or _is_open_class(target)


def find_named(content: Any) -> Iterator[Named]:
    """Yields every name of a class or function in nested nodes, those of a search space too."""
    for option, key, value in _walk(content):
        if key == TARGET and not _is_no_target(option, value):
            for text in _texts(value):
                yield Named(option, text)


@cache
def shipped_targets() -> frozenset[str]:
    """The classes and functions that the configs of this package name."""
    targets: set[str] = set()
    for path in CONFIGS.rglob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            code = line.partition("#")[0]
            targets.update(re.findall(rf"\b{TARGET}:\s*([\w.]+)\s*(?=$|[,}}])", code))
    return frozenset(targets - {"null"})


@cache
def _is_open_class(target: str) -> bool:
    """Returns whether a name is that of a class which a module of `OPEN` defines or exports.

    The module is imported; the name is looked up there and nowhere else, so that neither
    `dml.models.weights.Path` nor a function or a method passes.
    """
    module, _, name = target.rpartition(".")
    packages = [package for package in OPEN if is_below(module, [package])]
    is_private = "._" in f".{target}"
    if not packages or is_private or ":" in target or not _is_module(module):
        return False
    value = vars(import_module(module)).get(name)
    if not inspect.isclass(value) or not is_below(value.__module__, packages):
        return False
    return vars(sys.modules[value.__module__]).get(value.__qualname__) is value


def _is_module(name: str) -> bool:
    """Returns whether a module exists whose parents are packages of `OPEN`, or hold them."""
    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _walk(node: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yields (dotted option, key, value) of every entry of nested dictionaries and lists.

    An item of a list has no key. A dotted key counts by each of its parts:
    `{"loss.miner._target_": …}` sets `_target_`.
    """
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield f"{path}[{number}]", "", item
            yield from _walk(item, f"{path}[{number}]")
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        option = f"{path}.{name}" if path else str(name)
        for part in re.split(r"[.\[\]'\"]+", str(name)):
            yield option, part, value
        yield from _walk(value, option)


def _is_no_target(option: str, value: Any) -> bool:
    """Returns whether an option says that no class is chosen."""
    return option == NO_TARGET and value is None


def _find_forbidden(key: str, value: Any) -> str:
    """Returns what is never allowed in a file; empty if there is nothing."""
    if "${" in key or (isinstance(value, str) and "${" in value):
        return "holds ${, which a stored config never does"
    if OF_HYDRA.fullmatch(key):
        return "options of Hydra are not read from a file; leave it out"
    if key == TARGET:
        return _find_forbidden_target(value)
    if key.startswith("_"):
        return f"{key} is not read from a file; leave it out"
    return ""


def _find_forbidden_target(value: Any) -> str:
    """Returns why a `_target_` is never allowed in a file; empty for others."""
    for text in _texts(value):
        if not NAME.fullmatch(text):
            return f"'{text}' is not the dotted name of a class or function"
        if text.startswith("hydra."):
            return f"{text} would call what its arguments name, which no file may"
    return ""


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts of a `_target_`: one, or all choices of a search over classes."""
    if isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
    else:
        yield f"{value!r}, which is no text"


def _describe(outside: list[Named], source: Path) -> str:
    """Returns the refusal, with the file or package that the first name would import."""
    option, target = outside[0]
    others = {named.target for named in outside} - {target}
    more = f" (and {len(others)} more)" if others else ""
    code = find_file(target)
    return f"{source}: {option}: {target}{more} would run code of {code}; {ALLOW}"


def _find_fetched(
    content: dict[str, Any], trains: bool, loads_weights: bool
) -> Iterator[tuple[str, str]]:
    """Yields the options by which something would be fetched, with the reason."""
    unused = NOT_OPENED if trains else NOT_OPENED + OF_TRAINING
    for name, node in content.items():
        if name in unused:
            continue
        for option, _, value in _walk({name: node}):
            if option == WEIGHTS and not loads_weights:  # those of the folder are loaded instead
                continue
            if trains and MASK in str(value):  # a secret that was not stored, and is asked for
                continue
            for reason in _find_reasons(option, value):
                yield option, reason


def _find_reasons(option: str, value: Any) -> Iterator[str]:
    """Yields the reasons why the value of an option would be fetched, or reach a server."""
    is_text = isinstance(value, str)
    if is_text and FETCHED.match(IGNORED.sub("", value)):
        yield f"'{value}' would be fetched from elsewhere"
    if option != "backbone" and _downloads(value):
        yield "the weights of this network would be downloaded"
    if is_text and option.startswith(OF_TRACKERS):
        yield "a setting of a tracker may name a server or a program"


def _downloads(node: Any) -> bool:
    """Returns whether a network of ours that is not the run's backbone downloads its weights."""
    if not isinstance(node, dict):
        return False
    target = str(node.get(TARGET))
    is_ours = target.startswith("dml.models.") and target.endswith(WITH_WEIGHTS)
    return is_ours and node.get("weights", "imagenet") not in (None, "none")
