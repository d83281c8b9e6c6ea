"""Reading of the `config.yaml` of many run folders, as plain data.

A stored config is resolved. What somebody else wrote may hold `${oc.env:…}` all the same, which
OmegaConf would replace by values of this machine: it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.config.identity import flatten

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where PyYAML was built with it


def read_stored_config(path: Path) -> dict[str, Any]:
    """Returns the content of a `config.yaml`, which is resolved, as nested dictionaries.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a config, or holds `${`.
    """
    try:
        content = yaml.load(path.read_bytes(), _LOADER)
    except FileNotFoundError:
        raise
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(content, dict):
        raise ValueError("not a table of options")
    refuse_interpolation(content)
    return content


def refuse_interpolation(content: Any) -> None:
    """Raises ValueError, with the name of the option, if a text in nested mappings holds `${`."""
    for name, value in flatten(content).items():
        if "${" in f"{name} {value}":
            raise ValueError(f"{name} holds ${{, which a stored config never does")
