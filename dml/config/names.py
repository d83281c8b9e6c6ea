"""Names of classes and folders as references of a config: `name: ${class_name:${._target_}}`.

The name of a node is resolved once, when the config is composed; the run folder, the summary,
reports, pictures and trackers all read `<node>.name`.
"""

from __future__ import annotations

import re

from omegaconf import OmegaConf


def class_name(target: str) -> str:
    """Returns the last part of a dotted path, of functions that read data without `read_`."""
    return re.split(r"[.:]", target)[-1].removeprefix("read_")


OmegaConf.register_new_resolver(class_name.__name__, class_name, replace=True)
