"""Paths, commands and versions of this installation: a clone of the repository, or a wheel."""

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# Root of the clone; None for a wheel, which holds the configs inside the package.
CLONE = PACKAGE.parent if (PACKAGE.parent / "configs" / "train.yaml").is_file() else None
CONFIGS = PACKAGE / "_configs" if CLONE is None else CLONE / "configs"
PACKAGES = ("dml-benchmark", "torch", "torchvision", "timm", "pytorch-metric-learning", "numpy",
            "scipy", "pillow", "optuna", "scikit-learn", "faiss-cpu", "faiss-gpu")  # fmt: skip
PROGRAM = "dml"


def shell_command(name: str = "") -> str:
    """Returns the words that start a command: `dml runs`, or `python train.py` if it was typed.

    Where the program is not installed, it is `python -m dml`.

    Args:
        name: of the command; empty for the program alone.
    """
    if name == "train" and Path(sys.argv[0]).name == "train.py":
        return "python train.py"
    is_installed = Path(sys.executable).with_name(PROGRAM).is_file()
    program = PROGRAM if is_installed else f"python -m {PROGRAM}"
    return f"{program} {name}".rstrip()


def is_program(path: str) -> bool:
    """Returns whether `sys.argv` begins with this program: `dml`, or `python -m dml`."""
    return Path(path).name == PROGRAM or Path(path).match("dml/__main__.py")


def versions() -> dict[str, str]:
    """Returns the versions of the packages that results depend on."""
    return dict(_find_versions())


@cache
def _find_versions() -> dict[str, str]:
    """Returns the versions, which are read once: they are of what this process has imported."""
    from importlib.metadata import PackageNotFoundError, version  # late: --help need not load it

    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@cache
def git_revision() -> str | None:
    """Returns the commit of this code, with `+` if it was changed since; None if git fails.

    It is asked for once: this process runs the code that it has imported. An installed package has
    no commit, even if its environment lies in a repository: its version is returned.
    """
    if CLONE is None:
        from importlib.metadata import version

        return f"version {version('dml-benchmark')}"
    command = ["git", "-C", str(CLONE), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
