"""Copies of a published dataset in any of its layouts, in folders and archives of the user."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.data.preparation.sources import DatasetSource
from dml.data.preparation.unpack import unpack
from dml.data.readers.folder_names import is_system_folder
from dml.data.readers.layouts import LayoutMatch, find_layouts

UNPACKED = ".archives"  # hidden, so that no layout is looked for in it


def find_copy(dataset: DatasetSource, folder: Path) -> LayoutMatch | None:
    """Returns a layout of a dataset that is complete in a folder; None: there is none.

    The outermost one counts: a folder of tables alone may look like another layout.
    """
    matches = find_layouts(folder, dataset.layouts, any_name=True)
    complete = [match for match in matches if not match.missing]
    return min(complete, key=_depth, default=None)


def _depth(match: LayoutMatch) -> int:
    return len(match.folder.parts)


def take_copy(dataset: DatasetSource, sources: Sequence[Path], target: Path) -> Path:
    """Copies or unpacks a dataset and returns its folder, which has a name that its reader knows.

    Args:
        dataset: the dataset.
        sources: folders, archives and tables, which have the dataset together.
        target: where the folder is made.

    Raises:
        UserError: an archive is damaged, or no layout is complete.
        OSError: a file cannot be read or written.
    """
    if len(sources) == 1 and sources[0].is_dir():
        match = _require_copy(dataset, sources[0], str(sources[0]))
        folder = target / _folder_name(dataset, match)
        print_plain(f"copying {match.folder}", flush=True)
        shutil.copytree(match.folder, folder, ignore=_list_ignored)
        return folder
    unpacked = target / UNPACKED
    for source in sources:
        print_plain(f"unpacking {source}", flush=True)
        if source.is_dir():
            shutil.copytree(source, unpacked / source.name, ignore=_list_ignored)
        else:
            unpack(source, unpacked)
    names = ", ".join(source.name for source in sources)
    match = _require_copy(dataset, unpacked, names)
    folder = target / _folder_name(dataset, match)
    match.folder.rename(folder)
    return folder


def _folder_name(dataset: DatasetSource, match: LayoutMatch) -> str:
    return match.layout.home or f"{dataset.name}_copy"


def _list_ignored(folder: str, names: Collection[str]) -> list[str]:
    """Returns the names in a folder that are not copied: those of a system, hidden ones."""
    return [name for name in names if is_system_folder(name)]


def _require_copy(dataset: DatasetSource, folder: Path, shown: str) -> LayoutMatch:
    """Returns the layout of a dataset in a folder.

    Raises:
        UserError: no layout is complete; the message names what the first one lacks.
    """
    match = find_copy(dataset, folder)
    if match is not None:
        return match
    incomplete = find_layouts(folder, dataset.layouts, any_name=True)
    if incomplete:
        layout, _, missing = min(incomplete, key=_depth)
        raise UserError(
            f"--archive: {shown} has {layout.title} of {dataset.name} without "
            f"{' and '.join(missing)}; add what is missing, or name several: --archive <file> "
            f"--archive <file>"
        )
    names = " or ".join(file.name for file in dataset.files)
    layouts = []
    for layout in dataset.layouts:
        parts = [part.partition("|")[0] for part in layout.parts]
        layouts.append(" and ".join(parts))
    raise UserError(
        f"--archive: {shown} has no {names}, and nothing that a copy of {dataset.name} has: "
        f"{'; '.join(layouts)}"
    )
