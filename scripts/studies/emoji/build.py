"""Preparation of data=emoji: drawings of nine npm packages become pictures and their table."""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dml.core.download import Checksum
from dml.core.errors import UserError
from dml.data.emoji import COLUMNS, FOLDER, read_emoji
from dml.data.prepare import prepare
from dml.data.sources import DatasetSource, SourceFile
from scripts.studies.emoji.codes import EmojiNames, find_codes, read_set
from scripts.studies.emoji.drawings import Classes, Drawing, check_renderer, draw_classes
from scripts.studies.emoji.npm import pack
from scripts.studies.emoji.sets import SETS

PACKAGES = "packages"


def prepare_emoji(
    root: Path,
    archives: Sequence[Path] = (),
    source: DatasetSource | None = None,
) -> None:
    """Prepares `data=emoji` under `root`; does nothing if it is complete.

    Args:
        root: the folder of datasets.
        archives: local packages, or a folder of packages; npm downloads the others.
        source: other files than those of `EMOJI`.

    Raises:
        UserError: the renderer or npm is missing, a package is damaged or not the published one.
    """
    source, fetched = source or EMOJI, root / ".emoji.packages"
    paths = [*archives]
    if not _is_complete(source, root):
        check_renderer()
        here = {path.name for place in archives for path in (place, *place.glob("*.tgz"))}
        for one in SETS:
            if one.archive not in here:
                print(f"npm pack {one.package}")
                checksum = Checksum("sha256", one.sha256)
                paths.append(pack(one.package, fetched / one.archive, checksum))
    prepare(source, root, paths)
    shutil.rmtree(fetched, ignore_errors=True)


def _is_complete(source: DatasetSource, root: Path) -> bool:
    try:
        return bool(source.read(root))
    except UserError:
        return False


def build_emoji(folder: Path) -> None:
    """Builds the dataset in `folder/emoji` from the packages unpacked in `folder/packages`.

    The same packages give the same bytes.

    Raises:
        UserError: a package is damaged.
    """
    sets = {one.name: read_set(folder / PACKAGES / one.name / "package") for one in SETS}
    found = find_codes(sets)
    classes = _halve(draw_classes(sets, found))
    target = folder / FOLDER
    for code, drawings in classes.items():
        place = target / "images" / f"{code:x}"
        place.mkdir(parents=True)
        for name, drawing in drawings.items():
            (place / f"{name}.png").write_bytes(drawing.png)
    with open(target / "drawings.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_list_rows(classes, found))


def _halve(classes: Classes) -> Classes:
    """Orders the classes at random; leaves out the last of an odd number.

    Ordered by a hash, which is the same on every machine and in all versions of NumPy.
    """
    order = sorted(classes, key=lambda code: hashlib.sha256(f"emoji {code:x}".encode()).digest())
    return {code: classes[code] for code in order[: len(order) // 2 * 2]}


def _list_rows(
    classes: Mapping[int, Mapping[str, Drawing]], found: EmojiNames
) -> Iterator[tuple[object, ...]]:
    for label, (code, drawings) in enumerate(classes.items()):
        role = "train" if label < len(classes) // 2 else "test"
        about = f"{code:x}", found.names[code], found.groups.get(code, "Other")
        for name, drawing in drawings.items():
            yield label, role, *about, name, drawing.name, drawing.sha256


EMOJI = DatasetSource(
    "emoji",
    FOLDER,
    tuple(
        SourceFile(
            one.archive,
            home=f"npm pack {one.package}",
            checksum=Checksum("sha256", one.sha256),
            into=f"{PACKAGES}/{one.name}",
        )
        for one in SETS
    ),
    read_emoji,
    build=build_emoji,
)
