"""The folder of what is computed once for all commands of a user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns the folder, which may be absent.

    A user without a home, as in a container, gets one that cannot be made: nothing is kept.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if home:
        return Path(home) / "dml-benchmark"
    try:
        return Path.home() / ".cache" / "dml-benchmark"
    except RuntimeError:
        return Path(os.devnull) / "dml-benchmark"
