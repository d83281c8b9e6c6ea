"""Benchmarks made ready in one step: fetched, verified, unpacked, counted, then moved into place.

Until everything is right it happens in hidden folders; a dataset's own folder is whole or absent.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dml.core.download import check_md5, fetch
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import wait_for_lock
from dml.core.progress import tracked
from dml.data.base import ImageIndex
from dml.data.decode import load_image
from dml.data.parallel import mapped
from dml.data.published import preparation
from dml.data.sources import Published
from dml.data.unpack import unpack

Say = Callable[[str], None]


def prepare(
    dataset: Published,
    root: Path,
    archives: Sequence[Path] = (),
    urls: Sequence[str] = (),
    say: Say = print,
) -> None:
    """Makes a dataset ready under `root`; does nothing where it is.

    Args:
        dataset: one of `archives.DATASETS`.
        root: the folder of datasets.
        archives: files that are here already, told apart by name where several are needed.
        urls: places to download from instead of the usual ones, likewise.
        say: is told about every step.

    Raises:
        UserError: a file is missing, damaged or not the published one; nothing is left half done.
    """
    given = _by_name(dataset, archives, "--archive")
    places = _by_name(dataset, urls, "--url")
    if _is_ready(dataset, root, say):
        return
    try:
        with wait_for_lock(root / f".{dataset.name}.lock", f"preparing {dataset.title}"):
            if _is_ready(dataset, root, say):  # while this process waited
                return
            _check_obtainable(dataset, root, given, places)
            index = _install(dataset, root, given, places, say)
    except OSError as error:
        raise UserError(f"data.root: cannot write under {root} ({error})") from error
    say(f"{_counts(dataset, index)} under {root}: ready, train with data={dataset.name}")


def undecodable(index: ImageIndex) -> list[str]:
    """One line per image of the index that cannot be decoded."""
    if isinstance(index.images, np.ndarray):
        return []

    def problem(path: Path) -> str | None:
        try:
            load_image(path)
        except UserError as error:
            return str(error)
        return None

    problems = tracked(mapped(problem, index.images), "decoding", len(index.images))
    return [line for line in problems if line]


def check_images(index: ImageIndex) -> None:
    """Decodes every image.

    Raises:
        UserError: with a line per image that cannot be decoded, and their number.
    """
    problems = undecodable(index)
    if problems:
        count = f"{index.name}: {len(problems)} images are damaged; get them again"
        raise UserError("\n".join([*problems, count]))


def _by_name(dataset: Published, values: Sequence[str | Path], option: str) -> dict[str, str]:
    """Assigns paths or URLs to the dataset's files; a single file may have any name."""
    names = [file.name for file in dataset.files]
    if len(values) == len(names) == 1:
        return {names[0]: str(values[0])}
    assigned = {}
    for value in map(str, values):
        name = Path(value.partition("?")[0]).name
        if name not in names:
            raise UserError(f"{option} {value}: {dataset.name} needs {' and '.join(names)}")
        assigned[name] = value
    return assigned


def _is_ready(dataset: Published, root: Path, say: Say) -> bool:
    try:
        index = dataset.read(root)
    except UserError:
        return False
    say(f"{_counts(dataset, index)} under {root}: nothing to do")
    return True


def _install(
    dataset: Published, root: Path, given: dict[str, str], places: dict[str, str], say: Say
) -> ImageIndex:
    staging = root / f".{dataset.name}.unpacking"
    shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
    try:
        downloaded = _unpack_all(dataset, root, staging, given, places, say)
        index = _verified(dataset, staging)
        _move_into_place(dataset, root, staging, say)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for file in downloaded:
        file.unlink()
    return index


def _check_obtainable(
    dataset: Published, root: Path, given: dict[str, str], places: dict[str, str]
) -> None:
    absent = [path for path in given.values() if not Path(path).is_file()]
    if absent:
        raise UserError(f"--archive {absent[0]}: no such file")
    lacking = [
        file
        for file in dataset.files
        if file.name not in given and file.name not in places and file.url is None
    ]
    if lacking:
        options = " ".join(f"--archive {file.name}" for file in dataset.files)
        lines = [f"  {file.name}: {file.home}" for file in lacking]
        raise UserError(
            "\n".join(
                [
                    f"{dataset.title} has no public source without a login; get",
                    *lines,
                    f"and {preparation(dataset.name, root)} {options}",
                ]
            )
        )


def _unpack_all(
    dataset: Published,
    root: Path,
    staging: Path,
    given: dict[str, str],
    places: dict[str, str],
    say: Say,
) -> list[Path]:
    """Fills the staging folder; returns the files that were downloaded for it."""
    downloaded = []
    for file in dataset.files:
        if file.name in given:
            archive = Path(given[file.name])
            check_md5(archive, file.md5)
        else:
            url = places.get(file.name) or file.url
            assert url is not None, "_check_obtainable"
            say(f"downloading {file.name} from {url}")
            archive = fetch(url, root / ".downloads" / file.name, file.md5)
            downloaded.append(archive)
        say(f"unpacking {archive}")
        unpack(archive, staging / file.into)
        fault_point("unpacked")
    return downloaded


def _verified(dataset: Published, staging: Path) -> ImageIndex:
    try:
        index = dataset.read(staging)
    except UserError as error:
        reason = _reason(error).replace(str(staging), "the archive")
        raise UserError(
            f"this is not the published {dataset.title}: {reason}; get the files again"
        ) from error
    problems = undecodable(index)
    if problems:
        lines = "\n".join(problems).replace(str(staging), "the archive")
        raise UserError(f"{lines}\n{dataset.title} holds damaged images; get the files again")
    return index


def _move_into_place(dataset: Published, root: Path, staging: Path, say: Say) -> None:
    os.sync()  # all files are on disk before the folder gets its name
    target = root / dataset.folder
    if target.exists() or target.is_symlink():
        aside = next(
            path
            for number in range(1, 1000)
            if not (path := root / f"{dataset.folder}.incomplete-{number}").exists()
        )
        target.rename(aside)
        say(f"the incomplete folder that was there is {aside} now")
    (staging / dataset.folder).rename(target)


def _counts(dataset: Published, index: ImageIndex) -> str:
    return f"{dataset.title}: {len(index.images):,} images, {index.labels.max() + 1:,} classes"


def _reason(error: UserError) -> str:
    """A reader's message without the advice to run this very command."""
    return str(error).removeprefix("data.root: ").partition("; run:")[0]
