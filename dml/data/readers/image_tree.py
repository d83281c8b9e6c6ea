"""The images below a folder, without what disks, archives and photo servers have left there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dml.core.errors import UserError
from dml.data.image_formats import is_readable, why_not_read
from dml.data.image_index import file_of
from dml.data.readers.folder_names import is_system_folder


def walk_images(root: Path) -> tuple[list[Path], list[tuple[str, ...]], Counter[str]]:
    """Returns the images below a folder, and for each the names of the folders in between.

    Also returns the number of files that were left out, by the reason. Hidden folders are not
    counted.
    """

    def fail(error: OSError) -> NoReturn:
        raise UserError(f"data.root: cannot read {error.filename}: {error.strerror}") from error

    files = []
    left_out: Counter[str] = Counter()
    for parent, folders, names in os.walk(root, onerror=fail, followlinks=True):
        for name in _find_loops(root, Path(parent), folders):
            folders.remove(name)
            left_out["link to a folder above it"] += 1
        system = [name for name in folders if is_system_folder(name)]
        for name in system:
            folders.remove(name)
            if not name.startswith("."):
                left_out[f"in {name}"] += _count_images(Path(parent, name))
        for name in names:
            reason = why_not_read(name)
            if is_readable(name) and name.startswith("."):
                left_out["hidden"] += 1
            elif is_readable(name):
                files.append(Path(parent, name))
            elif reason is not None:
                left_out[reason] += 1
    files.sort()
    return files, [file.relative_to(root).parts[:-1] for file in files], +left_out


def _find_loops(root: Path, parent: Path, folders: Sequence[str]) -> list[str]:
    """Returns the links in a folder that lead back to a folder on the way to it."""
    links = [name for name in folders if (parent / name).is_symlink()]
    if not links:
        return []
    way = [parent, *(above for above in parent.parents if above.is_relative_to(root))]
    passed = {os.path.realpath(above) for above in way}
    return [name for name in links if os.path.realpath(parent / name) in passed]


def _count_images(folder: Path) -> int:
    """Returns the number of images in a folder of a system, as far as it can be read."""
    count = 0
    for _, _, names in os.walk(folder):
        count += sum(map(is_readable, names))
    return count


def describe_left_out(root: Path, left_out: Counter[str]) -> str:
    """Returns how many images of a folder were left out, and why."""
    total = sum(left_out.values())
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
    return f"{total} files of {root} are left out: {reasons}"


def find_missing(files: Sequence[Path]) -> list[Path]:
    """Returns the files that do not exist, in order.

    Every folder is listed once, since a look-up per file would take minutes for 120,000 images on a
    network file system.
    """
    paths = [file_of(file) for file in files]
    present: set[Path] = set()
    for folder in {path.parent for path in paths}:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file():
                    present.add(folder / entry.name)
    return [file for file, path in zip(files, paths, strict=True) if path not in present]
