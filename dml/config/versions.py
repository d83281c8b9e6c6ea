"""What changed in the config since older runs: options added, classes moved.

Runs made before such a change keep their digest, so that the same command finds the same folder,
and their stored config keeps loading.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

# Options added later → the value that gives the behavior from before. At this value an option is
# left out of the identity.
ADDED_LATER: dict[str, Any] = {
    "embedder.batch_norm_momentum": None,
    "optim.clip_loss_parameters": False,
    "evaluation.test_curve": False,
}

# The same for constructor options of one class, by its `_target_`, in any node that names it.
ADDED_TO_CLASSES: dict[str, dict[str, Any]] = {
    "dml.methods.metrix.Metrix": {"average": "anchors", "anc_neg_anchors": "all"},
}

# Nodes of `protocol.lookup` added later, such as `protocol.lookup.momentum`. They act only through
# the options that refer to them, so they are left out of the identity whatever they hold.
LOOKUPS_ADDED_LATER: tuple[str, ...] = ("protocol.lookup.batch_norm_momentum",)

# Dotted path of a class that moved → its path in older runs, which the identity keeps.
MOVED_TARGETS: dict[str, str] = {}


def as_in_older_runs(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as an older version would have had them; for the identity.

    Args:
        options: dotted name → value.
    """
    older = {}
    for name, value in options.items():
        if name in ADDED_LATER and _same(value, ADDED_LATER[name]):
            continue
        node, _, key = name.rpartition(".")
        added = ADDED_TO_CLASSES.get(options.get(f"{node}._target_", ""), {})
        if key in added and _same(value, added[key]):
            continue
        if any(f"{name}.".startswith(f"{lookup}.") for lookup in LOOKUPS_ADDED_LATER):
            continue
        if _is_target(name) and isinstance(value, str):
            value = MOVED_TARGETS.get(value, value)
        older[name] = value
    return older


def upgrade(cfg: DictConfig) -> None:
    """Completes the stored config of an older run in place.

    Adds the options that it lacks, at the value that gives the behavior from before, and replaces
    the paths of classes that moved.
    """
    for name, value in ADDED_LATER.items():
        node = OmegaConf.select(cfg, name.rpartition(".")[0]) if "." in name else cfg
        if isinstance(node, DictConfig) and name.rpartition(".")[2] not in node:
            OmegaConf.update(cfg, name, value, force_add=True)
    present = {old: new for new, old in MOVED_TARGETS.items()}
    _replace_targets(cfg, present)
    _add_class_options(cfg)


def _add_class_options(node: Any) -> None:
    if not isinstance(node, DictConfig):
        return
    for key in map(str, node):
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            _add_class_options(node[key])
    target = "" if OmegaConf.is_missing(node, "_target_") else node.get("_target_", "")
    for key, value in ADDED_TO_CLASSES.get(target, {}).items():
        if key not in node:
            OmegaConf.update(node, key, value, force_add=True)


def _replace_targets(node: Any, present: dict[str, str]) -> None:
    if not isinstance(node, DictConfig):
        return
    for key in map(str, node):
        if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key):
            continue
        value = node[key]
        if _is_target(key) and value in present:
            node[key] = present[value]
        _replace_targets(value, present)


def _is_target(name: str) -> bool:
    return name.rpartition(".")[2] == "_target_"


def _same(value: Any, other: Any) -> bool:
    """Whether two values are equal and of one type: `False` is not 0."""
    return type(value) is type(other) and bool(value == other)
