"""The images below a folder, without what disks, archives and photo servers have left there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError
from dml.data.image_formats import is_readable, why_not_read
from dml.data.image_index import file_of
from dml.data.image_names import ImageNames, texts_of
from dml.data.readers.folder_names import is_system_folder

# Between the names of a path that is sorted: lower than any letter, so that the images of a folder
# stand together, as those of sorted Paths do.
LOWEST = "\0"


class WalkedImages(NamedTuple):
    """The N images below a folder, sorted by the names of their paths.

    Attributes:
        files: their paths.
        folders: for each the names of the folders between the root and it; images of a folder share
            a tuple.
        left_out: number of files that were left out, by the reason. Hidden folders do not count.
    """

    files: ImageNames
    folders: list[tuple[str, ...]]
    left_out: Counter[str]


def walk_images(root: Path) -> WalkedImages:
    """Returns the images below a folder.

    Raises:
        UserError: a folder cannot be read.
    """

    def fail(error: OSError) -> NoReturn:
        raise UserError(f"data.root: cannot read {error.filename}: {error.strerror}") from error

    paths: list[str] = []
    left_out: Counter[str] = Counter()
    for parent, folders, names in os.walk(root, onerror=fail, followlinks=True):
        left_out += _leave_out_folders(root, Path(parent), folders)
        above = "".join(f"{part}{LOWEST}" for part in Path(parent).relative_to(root).parts)
        for name in names:
            if is_readable(name) and not name.startswith("."):
                paths.append(above + name)
                continue
            reason = "hidden" if is_readable(name) else why_not_read(name)
            if reason is not None:
                left_out[reason] += 1
    paths.sort()
    start = str(root / "_").removesuffix("_")
    files = ImageNames.of(start + path.replace(LOWEST, os.sep) for path in paths)
    return WalkedImages(files, _split_folders(paths), +left_out)


def _leave_out_folders(root: Path, parent: Path, folders: list[str]) -> Counter[str]:
    """Removes loops and folders of the system from a list, so that `os.walk` does not enter them.

    Args:
        root: where the walk began.
        parent: the folder of these folders.
        folders: names; changed in place.

    Returns:
        The number of links or images that are left out by it, by the reason.
    """
    left_out: Counter[str] = Counter()
    for name in _find_loops(root, parent, folders):
        folders.remove(name)
        left_out["link to a folder above it"] += 1
    system = [name for name in folders if is_system_folder(name)]
    for name in system:
        folders.remove(name)
        if not name.startswith("."):
            left_out[f"in {name}"] += _count_images(parent / name)
    return left_out


def _split_folders(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the names of the folders of each path, whose names are separated by `LOWEST`."""
    known: dict[str, tuple[str, ...]] = {"": ()}
    folders = []
    for path in paths:
        above = path.rpartition(LOWEST)[0]
        if above not in known:
            known[above] = tuple(above.split(LOWEST))
        folders.append(known[above])
    return folders


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
    are = verb_for(total, "is", "are")
    return f"{count_of(total, 'file')} of {root} {are} left out: {reasons}"


def find_missing(files: Sequence[Path]) -> list[Path]:
    """Returns the files that do not exist, in order.

    Every folder is listed once, since a look-up per file would take minutes for 120,000 images on a
    network file system.
    """
    present: dict[str, set[str]] = {}
    missing = []
    for file in texts_of(files):
        path = str(file_of(file)) if "#" in file else file
        name = path.rpartition(os.sep)[2]
        folder = path[: len(path) - len(name)]
        if folder not in present:
            present[folder] = _list_files(folder or os.curdir)
        if name not in present[folder]:
            missing.append(Path(file))
    return missing


def _list_files(folder: str) -> set[str]:
    """Returns the names of the files in a folder; none if it cannot be read."""
    names = set()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                names.add(entry.name)
    return names
