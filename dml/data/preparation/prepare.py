"""Preparation of benchmarks: download, verify, unpack, count, then move into place.

The work is done in hidden folders; the folder of the dataset is either complete or missing.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dml.core.download import ChecksumError, download, with_mirror
from dml.core.errors import UserError, first_line, nearest
from dml.core.fault_injection import fault_point
from dml.core.installation import shell_command
from dml.core.locks import wait_for_lock
from dml.core.plain_text import print_plain
from dml.data.image_index import ImageIndex
from dml.data.preparation.copies import find_copy, take_copy
from dml.data.preparation.image_check import check_images, first_of_classes
from dml.data.preparation.sources import DatasetSource, SourceFile
from dml.data.preparation.unpack import unpack
from dml.data.readers.layouts import locate
from dml.data.readers.published_dataset import preparation_advice

Sources = dict[str, Path | list[str]]  # local path or addresses of each file
HIGHRES = "highres"
MARK = ".unfinished"  # a file in a folder of archives that are being unpacked


def describe_files(dataset: DatasetSource) -> list[str]:
    """Returns lines on the files of a dataset: name, size, checksum, and every address."""
    lines = []
    for file in dataset.files:
        lines.append(f"{file.describe()}  from {file.home}")
        if file.warning:
            lines.append(f"  {file.warning}")
        lines += [f"  {address}" for address in with_mirror(file.name, file.addresses)]
    return lines


def prepare(
    dataset: DatasetSource, root: Path, archives: Sequence[Path] = (), urls: Sequence[str] = ()
) -> None:
    """Prepares a dataset under `root`, and prints the steps; does nothing if it is complete.

    Args:
        dataset: one of `sources.SOURCES`.
        root: the folder of datasets.
        archives: local files, assigned by name if there are several; a folder stands for its files.
            Folders and archives of other names have copies of the dataset (`copies.take_copy`).
        urls: `<file>=<address>`, which replaces the usual addresses of this file; an address alone
            is assigned by its last part, or to the only file that no other argument names.

    Raises:
        UserError: a file is missing, damaged or differs from the published one; nothing is
            installed.
    """
    local, copies = _assign_archives(dataset, archives)
    local |= _assign_urls(dataset, urls, local)
    takes_large = bool(copies)
    if _is_ready(dataset, root, takes_large):
        return
    try:
        with wait_for_lock(root / f".{dataset.name}.lock", f"preparing {dataset.name}"):
            if _is_ready(dataset, root, takes_large):  # another process was faster
                return
            if copies:
                index = _install_copy(dataset, root, copies)
            else:
                index = _install(dataset, root, local)
    except OSError as error:
        raise UserError(
            f"data.root: cannot write under {root} ({first_line(error)}); choose a folder that you "
            f"can write to: data.root=<folder>, or --root of {shell_command('prepare')}"
        ) from error
    for note in index.notes:
        print_plain(f"note: {note}")
    option = ""
    if index.name.endswith(HIGHRES):
        option = f" data.images={HIGHRES}"
    print_plain(
        f"{_describe_counts(dataset, index)} under {root}: ready, train with data={dataset.name}"
        f"{option}"
    )


def _assign_archives(
    dataset: DatasetSource, archives: Sequence[Path]
) -> tuple[Sources, list[Path]]:
    """Returns local paths by the dataset's files, and what has copies of it; either is empty.

    Raises:
        UserError: a path does not exist, or a folder has nothing of the dataset.
    """
    assigned: Sources = {}
    others = []
    for path in archives:
        if path.is_dir():
            files = _find_archives(path, dataset)
            assigned |= files
            if not files:
                others.append(path)
        elif not path.is_file():
            raise UserError(f"--archive {path} does not exist")
        elif name := _recognize(dataset, path):
            assigned[name] = path
        else:
            others.append(path)
    return _assign_rest(dataset, assigned, others)


def _assign_rest(
    dataset: DatasetSource, assigned: Sources, others: list[Path]
) -> tuple[Sources, list[Path]]:
    """Completes `_assign_archives` by paths that neither name nor checksum tells."""
    if not others:
        return assigned, []
    left = [file.name for file in dataset.files if file.name not in assigned]
    is_last = len(left) == len(others) == 1 and assigned and others[0].is_file()
    if is_last:  # all others are known by their names
        return {**assigned, left[0]: others[0]}, []
    tables = [path for path in assigned.values() if isinstance(path, Path)]
    return {}, tables + others


def _recognize(dataset: DatasetSource, path: Path) -> str | None:
    """Returns the name of the published file that a path is: by its name or its checksum."""
    for file in dataset.files:
        if path.name == file.name:
            return file.name
    for file in dataset.files:
        if file.checksum is None:
            continue
        with suppress(UserError):
            file.checksum.check(path)
            return file.name
    return None


def _assign_urls(dataset: DatasetSource, urls: Sequence[str], local: Sources) -> Sources:
    """Returns addresses by the dataset's files, of those that are not local."""
    names = [file.name for file in dataset.files]
    assigned: Sources = {}
    known, other = dict[str, str](), dict[str, str]()  # address → the last part of its path
    for name, address in read_urls(dataset, urls):
        if name:
            assigned[name] = [address]
            continue
        last = Path(address.partition("?")[0]).name
        kind = known if last in names else other
        kind[address] = last
    assigned |= local
    for address, last in known.items():
        assigned.setdefault(last, [address])
    for address, last in other.items():
        assigned[_find_name(dataset, last, address, [*assigned])] = [address]
    return assigned


def read_urls(dataset: DatasetSource, urls: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the name of a file, or an empty text, and the address of each `--url`.

    Raises:
        UserError: the dataset has no such file, or an address is none.
    """
    names = [file.name for file in dataset.files]
    pairs = []
    for url in urls:
        name, _, address = url.partition("=")
        if name in names:
            pairs.append((name, _check_address(address)))
            continue
        if "://" not in name and "://" in address:
            hint = nearest(name, names) or f"; its files are {' and '.join(names)}"
            raise UserError(f"--url {url}: {dataset.name} has no file {name}{hint}")
        pairs.append(("", _check_address(url)))
    return pairs


def _check_address(address: str) -> str:
    """Returns an address.

    Raises:
        UserError: it is none, such as the path of a file.
    """
    if not re.match(r"(https?|ftp|file)://\S+$", address):
        raise UserError(
            f"--url '{address}': not an address such as https://…; a file is given by --archive"
        )
    return address


def _find_name(dataset: DatasetSource, name: str, value: str, assigned: Sequence[str]) -> str:
    """Returns the file that a value stands for: by its name, or the only one that is left.

    Raises:
        UserError: several are left, or none.
    """
    names = [file.name for file in dataset.files]
    if name in names:
        return name
    left = [name for name in names if name not in assigned]
    if len(left) == 1:
        return left[0]
    advice = "--url <file>=<address> says which one it is" if "://" in value else "rename it"
    raise UserError(f"{value}: {dataset.name} needs {' and '.join(names)}; {advice}")


def _find_archives(folder: Path, dataset: DatasetSource) -> Sources:
    """Returns the published files in a folder; none if another copy is complete there."""
    archives: Sources = {}
    for file in dataset.files:
        inside = "|".join([file.name, *file.inside])
        path = locate(folder, inside)
        if path is not None and path.is_file():
            archives[file.name] = path
    if len(archives) < len(dataset.files) and find_copy(dataset, folder):
        return {}
    return archives


def _is_ready(dataset: DatasetSource, root: Path, takes_large: bool) -> bool:
    """Returns whether a dataset is complete; `takes_large`: also with large images alone."""
    try:
        index = dataset.read(root)
    except UserError:
        return False
    if index.name.endswith(HIGHRES) and not takes_large:
        return False
    print_plain(f"{_describe_counts(dataset, index)} under {root}: nothing to do")
    return True


def _install(dataset: DatasetSource, root: Path, local: Sources) -> ImageIndex:
    """Unpacks the files of a dataset, checks them, and moves the folder into place.

    Args:
        dataset: the dataset.
        root: the folder of datasets.
        local: what the user named for some of the files; the others are downloaded.
    """
    sources: Sources = {}
    for file in dataset.files:
        if addresses := with_mirror(file.name, file.addresses):
            sources[file.name] = addresses
    sources |= local
    _check_sources(dataset, root, sources)
    _check_local(dataset, local)
    _print_warnings(dataset, sources)
    staging, downloads = root / f".{dataset.name}.unpacking", root / ".downloads"
    archives = {}
    for file in dataset.files:
        archives[file.name] = _fetch(file, sources[file.name], downloads)
    _make_staging(staging)
    try:
        index = _unpack_all(dataset, archives, staging)
        os.sync()  # all files are on disk before the folder is renamed
        _move_into_place(staging / dataset.folder, root / dataset.folder)
    except UserError:
        for file in dataset.files:
            if file.checksum is None:  # it may be the wrong one, and is received again
                (downloads / file.name).unlink(missing_ok=True)
        raise
    finally:
        _remove_staging(staging)
    for name, source in sources.items():
        if not isinstance(source, Path):
            (downloads / name).unlink()
    return index


def _install_copy(dataset: DatasetSource, root: Path, copies: Sequence[Path]) -> ImageIndex:
    """Takes a copy in any layout, checks it, and moves its folder into place.

    Args:
        dataset: the dataset.
        root: the folder of datasets.
        copies: folders and archives.
    """
    staging = root / f".{dataset.name}.unpacking"
    _make_staging(staging)
    try:
        folder = take_copy(dataset, copies, staging)
        fault_point("unpacked")
        source = f"--archive {', '.join(map(str, copies))}"
        advice = "add what is missing or damaged, or take another copy"
        _verify(dataset, staging, source, advice)
        os.sync()
        _move_into_place(folder, root / folder.name)
    finally:
        _remove_staging(staging)
    print_plain("a copy has no published checksum: its counts and the decoding were the check")
    return dataset.read(root)


def _unpack_all(dataset: DatasetSource, archives: dict[str, Path], staging: Path) -> ImageIndex:
    """Unpacks the files of a dataset into a folder, and returns its index.

    Raises:
        UserError: they are not those of the published dataset.
    """
    for file in dataset.files:
        archive = archives[file.name]
        print_plain(f"unpacking {archive}")
        unpack(archive, staging / file.into)
        fault_point("unpacked")
    if dataset.build is not None:
        dataset.build(staging)
    sources = ", ".join(str(archive) for archive in archives.values())
    return _verify(dataset, staging, sources, "take the published files, or download them again")


def _check_sources(dataset: DatasetSource, root: Path, sources: Sources) -> None:
    lacking = [file for file in dataset.files if file.name not in sources]
    if lacking:
        options = " ".join(f"--archive {file.name}" for file in dataset.files)
        files = "".join(f"\n  {file.name}: {file.home}" for file in lacking)
        raise UserError(
            f"{dataset.name} has no public source without a login; get{files}\n"
            f"and {preparation_advice(dataset.name, root)} {options}"
        )


def _print_warnings(dataset: DatasetSource, sources: Sources) -> None:
    """Prints what to know of the files that will be downloaded, before the first of them."""
    for file in dataset.files:
        if file.warning and not isinstance(sources[file.name], Path):
            print_plain(f"{file.name}: {file.warning}", flush=True)


def _check_local(dataset: DatasetSource, local: Sources) -> None:
    """Compares local files with their checksums, before any download."""
    for file in dataset.files:
        source = local.get(file.name)
        if isinstance(source, Path) and file.checksum is not None:
            try:
                file.checksum.check(source)
            except ChecksumError as error:
                raise ChecksumError(
                    f"--archive: {error}; take the published file from another source"
                ) from error


def _fetch(file: SourceFile, source: Path | list[str], downloads: Path) -> Path:
    """Returns the archive, downloaded if its source is addresses, with the published checksum."""
    if isinstance(source, Path):
        return source
    target = downloads / file.name
    if not target.exists():
        print_plain(f"downloading {file.name} from {source[0]}", flush=True)
    published = file.home
    if file.checksum is not None and len(source) == 1:  # else the list of addresses names it
        published += f"; {file.checksum.describe()}"
    repeat = "run the same command again"
    if target.exists():  # placed by hand: if it is another file, it stays
        repeat = f"remove {target} and {repeat}"
    advice = (
        f"{repeat}; or download it elsewhere ({published}) and add --archive <file>, or give "
        f"another address: --url {file.name}=<address>"
    )
    try:
        return download(source, target, file.checksum, advice=advice)
    except ChecksumError as error:
        raise ChecksumError(f"{error}; {advice}") from error


def _move_into_place(folder: Path, target: Path) -> None:
    """Renames a complete folder to `target`; an incomplete one there gets another name."""
    if target.exists() or target.is_symlink():
        aside = target.with_name(f"{target.name}.incomplete-{int(time.time())}")
        target.rename(aside)
        print_plain(f"the incomplete folder was renamed to {aside}")
    folder.rename(target)


def _make_staging(folder: Path) -> None:
    """Makes an empty folder in the place of what a killed process has left.

    Raises:
        UserError: there is a link of this name, or a folder that this command has not made.
    """
    if os.path.lexists(folder):
        ours = folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))
        if folder.is_symlink() or not ours:
            raise UserError(f"data.root: {folder} is not of this command; rename or remove it")
        _remove_staging(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _remove_staging(folder: Path) -> None:
    """Removes a folder that this command has made; its mark last, by which it is known as ours."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARK:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _verify(dataset: DatasetSource, staging: Path, source: str, advice: str) -> ImageIndex:
    """Returns the index of an unpacked dataset after a check of its counts and images.

    Args:
        dataset: the dataset.
        staging: the folder to which it was unpacked or copied.
        source: what it was unpacked or copied from, for the message.
        advice: what to do if it is not the published dataset, for the message.

    Raises:
        UserError: it is incomplete, or an image cannot be decoded.
    """
    try:
        index = dataset.read(staging)
        if dataset.is_sampled:
            print_plain("decoding the first image of each class", flush=True)
            check_images(first_of_classes(index))
        else:
            check_images(index)
    except UserError as error:
        reason = str(error).removeprefix("data.root: ").partition("; run:")[0]
        reason = reason.replace(f" under {staging}", "").replace(f"{staging}/", "")
        raise UserError(
            f"{source}: this is not the published {dataset.name}: {reason}; {advice}"
        ) from error
    return index


def _describe_counts(dataset: DatasetSource, index: ImageIndex) -> str:
    return f"{dataset.name}: {len(index.images):,} images, {index.labels.max() + 1:,} classes"
