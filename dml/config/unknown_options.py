"""Explains options that do not exist: the nearest ones, other choices that have them, or a `+`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from dml.config.hints import find_choices_with, is_usual_slip
from dml.core.errors import nearest

NO_ACCUMULATION = (
    "these losses compare all images of a batch, and the gradients of small batches do not add up "
    "to those of a large one; use precision=bf16, or torchrun and more GPUs, which share a batch"
)
# Nodes that take options which their file does not list, with a `+` before the name.
OPEN_NODES = {"loss", "method", "backbone", "tracking", "data.reader", "optim.args", "optim.groups",
              "optim.schedule", "optim.schedule_args", "space.own", "protocol.lookup",
              "hydra.launcher"}  # fmt: skip
BOUND_NODES = ("loss", "method", "backbone")  # their options are arguments of a class
NOT_SUGGESTED = ("name", "result_id", "_target_")


def explain_unknown(
    name: str,
    value: str,
    options: Sequence[str],
    groups: Collection[str],
    node: Any,
    suggest: Callable[[str, str], str],
) -> str:
    """Returns the problem of a name that is no option.

    Args:
        name, value: as typed.
        options: dotted names of all options, nodes among them.
        groups: names that are chosen from files.
        node: content of the first part of the name, if that exists.
        suggest: returns the hint for an option that is typed in another form.
    """
    if "accumul" in name:
        return f"{name}: not supported, for a reason: {NO_ACCUMULATION}"
    above = {name[:place] for place, letter in enumerate(name) if letter == "."}
    siblings = list(list_siblings(name, options))
    is_open = bool(above & OPEN_NODES)
    if (not is_open or is_usual_slip(name)) and (hint := suggest(name, value)):
        return f"{name}: no such option{hint}"
    if above and above <= set(BOUND_NODES) and not _is_argument(name, node):
        return f"{name}: no such option{_suggest_argument(name, value, siblings)}"
    others = [one for one in options if one not in above]
    hint = _nearest_sibling(name, siblings) if is_open else nearest(name, [*others, *groups])
    if siblings and not hint and not is_open:
        hint = "; valid are " + ", ".join(siblings)
    return f"{name}: no such option{hint}" + (f"; +{name}={value} adds it" if is_open else "")


def list_siblings(name: str, options: Sequence[str]) -> Iterator[str]:
    """Yields the options beside `name` in its node."""
    parent = name.rpartition(".")[0]
    return (option for option in options if parent and option.rpartition(".")[0] == parent)


def _without_internal(options: Sequence[str]) -> list[str]:
    return [one for one in options if one.rpartition(".")[2] not in NOT_SUGGESTED]


def _nearest_sibling(name: str, siblings: Sequence[str]) -> str:
    """Returns the hint for the sibling whose last part is the closest one, else nothing."""
    node, _, leaf = name.rpartition(".")
    leaves = (one.rpartition(".")[2] for one in _without_internal(siblings))
    return nearest(leaf, leaves).replace("'", f"'{node}.", 1)


def _is_argument(name: str, node: Any) -> bool:
    """Returns True if the class of a node takes an argument, or is not known."""
    from dml.config.signatures import takes_argument  # late: it loads torch

    target = node.get("_target_") if isinstance(node, dict) else None
    return target in (None, "???") or takes_argument(target, name.rpartition(".")[2])


def _suggest_argument(name: str, value: str, siblings: Sequence[str]) -> str:
    """Returns the hint for an argument that a class does not take."""
    group, _, leaf = name.partition(".")
    if hint := _nearest_sibling(name, siblings):
        return hint
    if others := find_choices_with(leaf, value, group):
        return f"; write {others}"
    own = _without_internal(siblings)
    return f"; valid are {', '.join(own)}" if own else ""
