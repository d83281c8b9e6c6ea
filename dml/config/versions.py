"""Changes of the config since older runs: options added, classes moved.

Runs made before such a change keep their digest, so that the same command finds the same folder,
and their stored config keeps loading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from dml.config.flatten import flatten


@dataclass(frozen=True)
class Addition:
    """An option that older runs do not have.

    Attributes:
        option: dotted name.
        old_value: the value that gives the behavior from before; the identity leaves it out.
        applies: whether the option has an effect, given all options; where it has none, the
            identity leaves it out whatever its value.
    """

    option: str
    old_value: Any
    applies: Callable[[Mapping[str, Any]], bool] = lambda options: True


def _is_metrix(options: Mapping[str, Any]) -> bool:
    return options.get("method._target_") == "dml.methods.metrix.Metrix"


def _is_metrix_contrastive(options: Mapping[str, Any]) -> bool:
    return _is_metrix(options) and str(options.get("loss._target_")).endswith(".ContrastiveLoss")


def _is_proxy_synthesis(options: Mapping[str, Any]) -> bool:
    return options.get("method._target_") == "dml.methods.comparisons.ProxySynthesis"


def _is_cross_batch_memory(options: Mapping[str, Any]) -> bool:
    return options.get("method._target_") == "dml.methods.cross_batch.CrossBatchMemory"


def _is_glyphs(options: Mapping[str, Any]) -> bool:
    return options.get("data.reader._target_") == "dml.data.glyphs.read_glyphs"


ADDED_LATER: tuple[Addition, ...] = (
    Addition("method.average", "anchors", _is_metrix_contrastive),
    Addition("method.anc_neg_anchors", "all", _is_metrix),
    Addition("method.classes", "pair", _is_proxy_synthesis),
    Addition("method.exclude_self_pairs", False, _is_cross_batch_memory),
    Addition("data.exif_orientation", False),
    Addition("data.skip_corrupt", False),
    Addition("embedder.batch_norm_momentum", None),
    Addition("optim.clip_loss_parameters", False),
    Addition("evaluation.test_curve", False),
    Addition("evaluation.backend", "auto"),
    Addition("optim.schedule_args", {}),
    Addition("data.reader.first_class", 0, _is_glyphs),
)

# Nodes of `protocol.lookup` added later, such as `protocol.lookup.momentum`. They act only through
# the options that refer to them, so they are left out of the identity whatever they hold.
LOOKUPS_ADDED_LATER: tuple[str, ...] = (
    "protocol.lookup.batch_norm_momentum",
    "protocol.lookup.proxies_per_class",
    "protocol.lookup.small_cnn_width",
    "protocol.lookup.standin_loss_lr",
    "protocol.lookup.standin_loss",
    "protocol.lookup.standin_sampler",
    "protocol.lookup.standin_images_per_class",
    "protocol.lookup.sampler",
    "protocol.lookup.per_class",
)

# Options that are no more, and that stored configs of older runs may hold.
REMOVED: tuple[str, ...] = ("data.cache_device", "experiment.claims", "experiment.first_repeat")

# Dotted path of a class that moved → its path in older runs, which the identity keeps.
MOVED_TARGETS: dict[str, str] = {}


def as_in_older_runs(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as an older version would have had them; for the identity.

    Args:
        options: dotted name → value.
    """
    additions = {one.option: one for one in ADDED_LATER}
    lookups = tuple(f"{lookup}." for lookup in LOOKUPS_ADDED_LATER)
    older = {}
    for name, value in options.items():
        addition = additions.get(name)
        if addition and (_same(value, addition.old_value) or not addition.applies(options)):
            continue
        if f"{name}.".startswith(lookups):
            continue
        if _is_target(name) and isinstance(value, str):
            value = MOVED_TARGETS.get(value, value)
        older[name] = value
    return older


def upgrade(cfg: DictConfig) -> None:
    """Completes the stored config of an older run in place.

    Replaces the paths of classes that moved, drops options that are no more, and adds the options
    that it lacks, at the value that gives the behavior from before.
    """
    _replace_targets(cfg, {old: new for new, old in MOVED_TARGETS.items()})
    for option in REMOVED:
        parent, _, name = option.rpartition(".")
        if (node := OmegaConf.select(cfg, parent)) is not None:
            with open_dict(node):
                node.pop(name, None)
    options = flatten(OmegaConf.to_container(cfg, resolve=False))
    for one in ADDED_LATER:
        if one.option not in options and one.applies(options):
            OmegaConf.update(cfg, one.option, one.old_value, force_add=True)


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
    """Returns True if two values are equal and of one type: `False` is not 0."""
    return type(value) is type(other) and bool(value == other)
