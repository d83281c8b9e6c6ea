"""Identity of a run: the options that determine its result, and the digest in its folder name.

Also the ids of its method and protocol in the tables of published results.
"""

from __future__ import annotations

import hashlib
import json
from pkgutil import resolve_name
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.secrets import MASK, is_secret_name, mask_options

# Options that do not change the result: device, speed, location and presentation of a run.
NOT_IN_DIGEST = (
    "name", "note", "experiment", "tracking", "outputs", "overwrite", "max_minutes",
    "device", "channels_last", "compile", "keep_memory", "data.workers", "protocol.workers",
    "evaluation.backend", "evaluation.keep_embeddings", "evaluation.map_classes",
    "protocol.backbones", "search.storage",
    "data.pair_sampler", "protocol.trials",  # act through data.sampler and search.trials
    "data.reader.crop", "data.reader.resolution",  # follow data.crop and data.images
)  # fmt: skip
# Also excluded for a dataset that is identified by its name (`data.identified_by: name`).
ROOTS = ("data.root", "data.reader.root")

# Options that were added after runs had been stored, with the default that acts as before. They
# are part of the identity only where they differ from it: older runs keep their digests.
ADDED: dict[str, Any] = {
    "backbone.args": {},
    "backbone.checkpointing": False,
    "backbone.lora.alpha": 16,
    "backbone.lora.rank": 8,
    "backbone.lora.targets": "all",
    "backbone.train": "all",
    "code": {},  # see `own_code.py`
    "data.background": "white",
    "data.categories_per_batch": None,
    "data.crop": None,
    "data.images": None,
    "data.max_pixels": MAX_IMAGE_PIXELS,
    "ema": None,
    "evaluation.by": None,
    "evaluation.compress": [],
    "evaluation.metrics": {},
    "optim.layer_decay": 1.0,
    "optim.schedule_unit": "epochs",
    "optim.warmup_steps": 0,
    "protocol.neighbors": 5,
    "protocol.split_seed": 0,
    "protocol.test_share": 0.2,
    "protocol.validation_share": 0.2,
    "transform._target_": None,
    "transform.args": {},
    "transform.then": [],
}


def flatten(node: Any, path: str = "") -> dict[str, Any]:
    """Returns dotted name → value of a nested mapping; an empty mapping is a value."""
    if not (isinstance(node, dict) and node):
        return {path: node}
    options: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            options.update(flatten(value, name))
        else:
            options[name] = value
    return options


def refuse_interpolation(content: Any) -> None:
    """Raises ValueError, with the name of the option, if a text in nested mappings contains `${`.

    A stored config is resolved. In a config of another user, OmegaConf would replace `${oc.env:…}`
    by values of this machine.
    """
    for name, value in flatten(content).items():
        if "${" in f"{name} {value}":
            raise ValueError(f"{name} holds ${{, which a stored config never does")


def identity(cfg: DictConfig | dict[str, Any]) -> dict[str, Any]:
    """Returns the options that determine the result: dotted name → plain value, sorted by name.

    Args:
        cfg: a config, which may be flat already.
    """
    plain: Any = cfg
    if isinstance(cfg, DictConfig):
        plain = OmegaConf.to_container(cfg, resolve=True)
    options = mask_options(flatten(plain))
    excluded: tuple[str, ...] = NOT_IN_DIGEST
    if options.get("data.identified_by") == "name":
        excluded += ROOTS
    if "search.name" not in options:
        excluded += ("space",)
    prefixes = tuple(f"{name}." for name in excluded)
    determining = {}
    for name, value in sorted(options.items()):
        is_excluded = f"{name}.".startswith(prefixes) or _is_key(name, value)
        is_unchanged = name in ADDED and value == ADDED[name]
        if not (is_excluded or is_unchanged):
            determining[name] = value
    return determining


def _is_key(name: str, value: Any) -> bool:
    """Returns whether an option is for a key or password, which is masked or not set."""
    return is_secret_name(name) and value in (None, "", MASK)


def digest(cfg: DictConfig | dict[str, Any]) -> str:
    """Returns eight hex digits of a hash of all options that determine the result."""
    return hashlib.sha256(json.dumps(identity(cfg)).encode()).hexdigest()[:8]


def method_name(loss: str, method: str) -> str:
    """Returns the name of a loss with a method: `ms`, `ms + metrix`, or `untrained`."""
    if method == "untrained":
        return method
    if method == "plain":
        return loss
    return f"{loss} + {method}"


def result_id(config: Any) -> str:
    """Returns the id of loss and method in the tables of published results.

    It is given in the file of the method (`result_id`), or by its class if it depends on options.
    """
    if "result_id" in config.method:
        return config.method["result_id"]
    loss_id, name = config.loss["result_id"], config.method["name"]
    if name == "plain":
        return loss_id
    method = resolve_name(config.method["_target_"])
    if hasattr(method, "result_id"):
        return method.result_id(loss_id, config.method)
    return f"{loss_id}+{name}"


def dataset_id(name: str, crop: str | None, images: str | None) -> str:
    """Returns the id of a dataset in tables: `cub`, `cub_boxes` or `inshop_highres`.

    Published results are of whole images in the papers' size, so that none has the id of others.

    Args:
        name, crop, images: `data.name`, `data.crop` and `data.images`.
    """
    return "_".join(filter(None, (name, crop, images)))


def protocol_id(config: Any) -> str:
    """Returns the id of the protocol in the tables of published results, with its label noise."""
    clean, noise = config.protocol.result_id, config.data.label_noise
    if not noise:
        return clean
    return f"{clean.removesuffix('_standard')}_noise{100 * noise:g}"
