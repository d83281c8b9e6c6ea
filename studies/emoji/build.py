"""Preparation of data=emoji: drawings of nine npm packages become pictures and their table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from dml.core.download import Checksum
from dml.data.preparation.sources import DatasetSource, SourceFile
from dml.data.readers.emoji import read_emoji
from studies.emoji.codes import EmojiNames, find_codes, read_set
from studies.emoji.drawings import Classes, Drawing, draw_classes
from studies.emoji.sets import SETS
from studies.packages import write_table

COLUMNS = ("label", "role", "code", "name", "group", "set", "drawing", "svg_sha256")
PACKAGES = "packages"


def build_emoji(folder: Path) -> None:
    """Builds the dataset in `folder/emoji` from the packages unpacked in `folder/packages`.

    The same packages give the same bytes.

    Raises:
        UserError: a package is damaged.
    """
    sets = {one.name: read_set(folder / PACKAGES / one.name / "package") for one in SETS}
    found = find_codes(sets)
    classes = _halve(draw_classes(sets, found))
    target = folder / "emoji"
    for code, drawings in classes.items():
        place = target / "images" / f"{code:x}"
        place.mkdir(parents=True)
        for name, drawing in drawings.items():
            (place / f"{name}.png").write_bytes(drawing.png)
    write_table(target, COLUMNS, _list_rows(classes, found))


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
    "emoji",
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
