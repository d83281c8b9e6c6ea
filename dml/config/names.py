"""Values that a config computes: names of classes and folders, the size of a grid of choices.

`name: ${class_name:${._target_}}`.

The name of a node is resolved once, when the config is composed; the run folder, the summary,
reports, pictures and trackers all read `<node>.name`.
"""

from __future__ import annotations

import re
from pathlib import Path

from omegaconf import OmegaConf

from dml.config.search_space import grid_size


def class_name(target: str) -> str:
    """Returns the last part of a dotted path, of functions that read data without `read_`."""
    return re.split(r"[.:]", target)[-1].removeprefix("read_")


def folder_name(root: str) -> str:
    """Returns the name of a folder of images, or of the folder of a CSV file.

    Characters that a run folder's name cannot have become `_`; it begins with a letter or digit.
    """
    path = Path(root).expanduser().absolute()
    place = path.parent if path.is_file() or path.suffix.lower() == ".csv" else path
    return re.sub(r"[^\w.+=,@-]", "_", place.resolve().name).lstrip(".+=,@-") or "folder"


def method_name(loss: str, method: str) -> str:
    """Returns the name of loss and method as options: `ms`, `ms + metrix`, or `untrained`."""
    if method == "untrained":
        return method
    return loss if method == "plain" else f"{loss} + {method}"


for resolver in (class_name, folder_name, grid_size):
    OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
