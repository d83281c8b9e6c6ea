"""Paths and commands of this installation: a clone of the repository, or an installed wheel."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# Root of the clone; None for a wheel, which holds the configs inside the package.
CLONE = PACKAGE.parent if (PACKAGE.parent / "configs" / "train.yaml").is_file() else None
CONFIGS = PACKAGE / "_configs" if CLONE is None else CLONE / "configs"
INSTALLED_PREFIX = "dml-"
SCRIPTS = {
    "train": "train.py",
    "evaluate": "evaluate.py",
    "embed": "embed.py",
    "search": "search.py",
    "export": "export.py",
    "report": "scripts/report.py",
    "prepare": "scripts/prepare_data.py",
    "runs": "scripts/runs.py",
}


def shell_command(name: str) -> str:
    """Returns the words that start a command: `python train.py`, or `dml-train` once installed.

    An editable installation has both forms; the result has the form of the running command.

    Args:
        name: one of `SCRIPTS`.
    """
    started_as_installed = Path(sys.argv[0]).name.startswith(INSTALLED_PREFIX)
    if CLONE is None or started_as_installed:
        return f"{INSTALLED_PREFIX}{name}"
    return f"python {SCRIPTS[name]}"
