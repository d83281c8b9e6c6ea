"""Resolvers of configs: values by another option, timm's records, names of classes and folders.

`batch_size: ${by:backbone.name,{resnet50:96},128}`. A value is computed once, when the config is
composed; run folder, summary, reports and trackers all read the result.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.search_space import grid_size
from dml.core.timm_records import find_record


def by(options: str, table: DictConfig, default: Any, *, _root_: DictConfig) -> Any:
    """Returns the entry of a table for the value of another option, or the default.

    Args:
        options: dotted name, or names joined by `+`; the values of several are joined by `_`.
        table: value of these options → result.
        default: result for values that are not in the table.
    """
    key = "_".join(str(OmegaConf.select(_root_, name)) for name in options.split("+"))
    return table.get(key, default)


def timm(model: str, key: str) -> Any:
    """Returns an entry of timm's record of a network's pretrained weights.

    Args:
        model: timm's name, with or without a tag.
        key: "input_size" (the shorter side), "mean", "std", "interpolation" or "crop_share" (None
            if timm resizes whole images to a square).

    Raises:
        ConfigError: timm has no such network or tag.
    """
    record = find_record(model)
    if key == "input_size":
        return min(record["input_size"][1:])
    if key == "crop_share":
        return None if record["crop_mode"] == "squash" else record["crop_pct"]
    value = record[key]
    return list(value) if isinstance(value, tuple) else value


def class_name(target: str) -> str:
    """Returns the last part of a dotted path, without a leading `read_`."""
    return re.split(r"[.:]", target)[-1].removeprefix("read_")


def folder_name(root: str) -> str:
    """Returns the name of a folder of images, or of the folder of a CSV file.

    Characters that are invalid in a run folder's name become `_`; leading punctuation is removed.
    """
    path = Path(root).expanduser().absolute()
    folder = path.parent if path.is_file() or path.suffix.lower() == ".csv" else path
    return re.sub(r"[^\w.+=,@-]", "_", folder.resolve().name).lstrip(".+=,@-") or "folder"


for resolver in (by, timm, class_name, folder_name, grid_size):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
