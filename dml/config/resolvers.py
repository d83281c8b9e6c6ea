"""Resolvers of configs: values by another option, timm's records, names of classes and folders.

`batch_size: ${by:backbone.name,{resnet50:96},128}`. A value is computed once, when the config is
composed; run folder, summary, reports and trackers all read the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from dml.config.search_space import grid_size
from dml.config.stored_network import join_line, parse_network
from dml.core.npz_files import map_array
from dml.core.regular_files import open_regular
from dml.core.timm_records import find_record


def by(options: str, table: DictConfig, default: Any, *, _root_: DictConfig) -> Any:
    """Returns the entry of a table for the value of another option, or the default.

    Args:
        options: dotted name, or names joined by `+`; the values of several are joined by `_`.
        table: value of these options → result.
        default: result for values that are not in the table.
    """
    key = "_".join(str(OmegaConf.select(_root_, name)) for name in options.split("+"))
    for value in table:
        if str(value) == key:  # numbers, too
            return table[value]
    return default


def epochs(count: int, *, _root_: DictConfig) -> int | str:
    """Returns a number of epochs as a schedule counts it, or as text where it counts steps.

    How many steps an epoch has is known later: `dml.training.schedules` converts "10 epochs".
    """
    if OmegaConf.select(_root_, "optim.schedule_unit") == "steps":
        return f"{count} epochs"
    return count


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
    if isinstance(value, tuple):
        return list(value)
    return value


def class_name(target: str) -> str:
    """Returns the last part of a dotted path, without a leading `read_`."""
    return re.split(r"[.:]", target)[-1].removeprefix("read_")


def folder_name(root: str) -> str:
    """Returns the name of a folder of images, of a file's folder, or of a file of features.

    Characters that are invalid in a run folder's name become `_`, leading punctuation is removed,
    and letters lose their accents, or are left out where they are not Latin. A name that this
    changes ends in a digest, by which it differs from others.
    """
    path = Path(root).expanduser().absolute()
    if path.suffix == ".npz":
        path = path.with_suffix("")
    is_file = os.path.isfile(path) or (
        path.suffix.lower() in (".csv", ".tar", ".parquet") and not os.path.isdir(path)
    )
    folder = path.parent if is_file else path
    name = Path(os.path.realpath(folder)).name  # also of a link to itself, which the reader names
    name = unicodedata.normalize("NFC", name)  # macOS stores accents apart
    valid = re.sub(r"[^\w.+=,@-]", "_", name).lstrip(".+=,@-")
    if valid == name and valid.isascii():
        return valid or "folder"  # of "/"
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:6]
    letters = unicodedata.normalize("NFKD", valid).encode("ascii", "ignore").decode()
    start = letters.strip("_.+=,@-") or "folder"
    return f"{start}-{digest}"


def features(root: str, key: str) -> Any:
    """Returns a property of a file of features.

    Args:
        root: the file. Of one that cannot be read, which its reader reports, a default is returned.
        key: "channels" of a row (default: 1), or "network" and options that made
            the features, as on the command line (default: None, also of a network that a file
            may not name).
    """
    try:
        if key == "channels":
            return map_array(Path(root), "embeddings").shape[1]
        with open_regular(root) as opened, np.load(opened, allow_pickle=False) as file:
            made_by = json.loads(str(file["made_by"]))
        alone = made_by["features"] and made_by["repeat"] is made_by["fold"] is None
        # Checked here, so that a run does not keep what it could not use, and again on loading.
        parse_network(made_by["network"], made_by["options"], root)
        return join_line(made_by["network"], made_by["options"]) if alone else None
    except Exception:  # of many classes, for bytes of any kind
        return 1 if key == "channels" else None


for resolver in (by, epochs, timm, class_name, folder_name, features, grid_size):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
