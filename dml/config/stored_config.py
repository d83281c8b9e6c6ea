"""Reading of the `config.yaml` of many run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where PyYAML was built with it


def read_stored_config(path: Path) -> dict[str, Any]:
    """Returns the content of a `config.yaml`, which is resolved, as nested dictionaries.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a config.
    """
    try:
        content = yaml.load(path.read_bytes(), _LOADER)
    except FileNotFoundError:
        raise
    except (OSError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(content, dict):
        raise ValueError("not a table of options")
    return content
