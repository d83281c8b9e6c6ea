"""Preparation of benchmarks: download, verify, unpack, count, then move into place.

The work is done in hidden folders; the folder of the dataset is either complete or missing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dml.core.download import ChecksumError, DownloadError, download
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import wait_for_lock
from dml.data.image_check import find_undecodable
from dml.data.image_index import ImageIndex
from dml.data.published_dataset import preparation_advice
from dml.data.sources import DatasetSource, SourceFile
from dml.data.unpack import unpack

Say = Callable[[str], None]


def prepare(
    dataset: DatasetSource,
    root: Path,
    archives: Sequence[Path] = (),
    urls: Sequence[str] = (),
    say: Say = print,
) -> None:
    """Prepares a dataset under `root`; does nothing if it is complete.

    Args:
        dataset: one of `sources.SOURCES`.
        root: the folder of datasets.
        archives: local files, assigned by name if there are several; a folder stands for its files.
        urls: URLs that replace the usual ones, assigned in the same way.
        say: called with one line of text per step.

    Raises:
        UserError: a file is missing, damaged or differs from the published one; nothing is
            installed.
    """
    local = _assign_files(dataset, _list_archives(dataset, archives), "--archive")
    links = _assign_files(dataset, urls, "--url")
    if _is_ready(dataset, root, say):
        return
    try:
        with wait_for_lock(root / f".{dataset.name}.lock", f"preparing {dataset.title}"):
            if _is_ready(dataset, root, say):  # another process was faster
                return
            _check_obtainable(dataset, root, local, links)
            index = _install(dataset, root, local, links, say)
    except OSError as error:
        raise UserError(f"data.root: cannot write under {root} ({error})") from error
    say(f"{_describe_counts(dataset, index)} under {root}: ready, train with data={dataset.name}")


def _assign_files(
    dataset: DatasetSource, values: Sequence[str | Path], option: str
) -> dict[str, str]:
    """Assigns paths or URLs to the dataset's files by name; a single file may have any name."""
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


def _list_archives(dataset: DatasetSource, archives: Sequence[Path]) -> list[Path]:
    """Replaces folders by the dataset's files in them."""
    paths = []
    for path in archives:
        if not path.exists():
            raise UserError(f"--archive {path} does not exist")
        inside = [path / file.name for file in dataset.files if (path / file.name).is_file()]
        if path.is_dir() and not inside:
            raise UserError(
                f"--archive {path}: the folder holds no file of {dataset.name}, such as "
                f"{dataset.files[0].name}"
            )
        paths += inside if path.is_dir() else [path]
    return paths


def _is_ready(dataset: DatasetSource, root: Path, say: Say) -> bool:
    try:
        index = dataset.read(root)
    except UserError:
        return False
    say(f"{_describe_counts(dataset, index)} under {root}: nothing to do")
    return True


def _install(
    dataset: DatasetSource, root: Path, local: dict[str, str], links: dict[str, str], say: Say
) -> ImageIndex:
    staging, downloads = root / f".{dataset.name}.unpacking", root / ".downloads"
    shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
    try:
        for file in dataset.files:
            archive = _obtain(file, local, links, downloads / file.name, say)
            say(f"unpacking {archive}")
            unpack(archive, staging / file.into)
            fault_point("unpacked")
        if dataset.build is not None:
            dataset.build(staging)
        index = _verify(dataset, staging)
        _move_into_place(dataset, root, staging, say)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    for file in dataset.files:
        if file.name not in local:
            (downloads / file.name).unlink()
    return index


def _check_obtainable(
    dataset: DatasetSource, root: Path, local: dict[str, str], links: dict[str, str]
) -> None:
    named = {**local, **links}
    lacking = [file for file in dataset.files if file.name not in named and file.url is None]
    if lacking:
        options = " ".join(f"--archive {file.name}" for file in dataset.files)
        files = "".join(f"\n  {file.name}: {file.home}" for file in lacking)
        raise UserError(
            f"{dataset.title} has no public source without a login; get{files}\n"
            f"and {preparation_advice(dataset.name, root)} {options}"
        )


def _obtain(
    file: SourceFile, local: dict[str, str], links: dict[str, str], target: Path, say: Say
) -> Path:
    """Returns the user's local file, or downloads it from `links` or from its usual URL."""
    try:
        if file.name in local:
            path = Path(local[file.name])
            if file.checksum is not None:
                file.checksum.check(path)
            return path
        url = links.get(file.name, file.url)
        assert url is not None, "_check_obtainable"
        say(f"downloading {file.name} from {url}")
        return download(url, target, file.checksum)
    except DownloadError as error:
        raise UserError(
            f"{error}; run the same command again, or give another URL with --url URL or a local "
            f"file with --archive FILE"
        ) from error
    except ChecksumError as error:
        raise UserError(
            f"{file.name}: {error}: the file is damaged or another one; download it again, from "
            f"another URL if necessary (--url URL or --archive FILE)"
        ) from error


def _verify(dataset: DatasetSource, staging: Path) -> ImageIndex:
    try:
        index = dataset.read(staging)
    except UserError as error:
        reason = str(error).removeprefix("data.root: ").partition("; run:")[0]
        reason = reason.replace(str(staging), "the archive")
        raise UserError(
            f"this is not the published {dataset.title}: {reason}; download the files again"
        ) from error
    problems = find_undecodable(index.images)
    if problems:
        lines = "\n".join(problems.values()).replace(str(staging), "the archive")
        raise UserError(f"{lines}\n{dataset.title} has damaged images; download the files again")
    return index


def _move_into_place(dataset: DatasetSource, root: Path, staging: Path, say: Say) -> None:
    os.sync()  # all files are on disk before the folder is renamed
    target = root / dataset.folder
    if target.exists() or target.is_symlink():
        aside = root / f"{dataset.folder}.incomplete-{int(time.time())}"
        target.rename(aside)
        say(f"the incomplete folder was renamed to {aside}")
    (staging / dataset.folder).rename(target)


def _describe_counts(dataset: DatasetSource, index: ImageIndex) -> str:
    return f"{dataset.title}: {len(index.images):,} images, {index.labels.max() + 1:,} classes"
