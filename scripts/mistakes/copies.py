"""Copies of the repository's files, in which mistakes are planted and tests are run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def copy_repository(root: Path, folder: Path) -> Path:
    """Copies the files of a clone that git does not ignore, as they are now; returns `folder`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        path = root / name
        if name and path.is_file():  # one that is deleted is still listed until the next commit
            copied = folder / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copied, follow_symlinks=False)
    return folder


def forget_compiled(path: Path) -> None:
    """Removes the compiled modules of a module's folder.

    Python compares the second and the size of a source, which a mistake may leave as they are.
    """
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
