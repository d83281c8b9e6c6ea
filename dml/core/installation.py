"""Paths and commands of this installation: a clone of the repository, or an installed wheel."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# Root of the clone; None for a wheel, which holds the configs inside the package.
CLONE = PACKAGE.parent if (PACKAGE.parent / "configs" / "train.yaml").is_file() else None
CONFIGS = PACKAGE / "_configs" if CLONE is None else CLONE / "configs"
SCRIPTS = {"prepare": "prepare_data.py"}  # whose name in scripts/ differs from the command's
TOP_LEVEL = ("train", "evaluate", "embed", "search", "export")


def shell_command(name: str) -> str:
    """Returns the words that start a command: `python train.py`, or `dml-train` once installed.

    An editable installation has both forms; the result has the form of the running command.

    Args:
        name: of the command, without `dml-`.
    """
    started_as_installed = Path(sys.argv[0]).name.startswith("dml-")
    if CLONE is None or started_as_installed:
        return f"dml-{name}"
    script = SCRIPTS.get(name, f"{name}.py")
    return f"python {script}" if name in TOP_LEVEL else f"python scripts/{script}"
