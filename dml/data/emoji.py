"""Emoji drawn by independent designers: half of the code points train, the others are unseen."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex
from dml.data.published_dataset import PublishedDataset

NAME, TITLE = "emoji", "Emoji"
TRAIN_IMAGES = 4_954
FINGERPRINT = "f10fc9f154090f27"
FOLDER = "emoji"
COLUMNS = ("label", "role", "code", "name", "group", "set", "drawing", "svg_sha256")


def read_emoji(
    root: str | Path,
    images: int = 9_869,
    classes: int = 1_370,
    fingerprint: str | None = FINGERPRINT,
) -> ImageIndex:
    """Lists the drawings from the table `emoji/drawings.csv` that their preparation wrote.

    Args:
        root: the folder that holds `emoji/`.
        images, classes: the counts to check against.
        fingerprint: 16 digits of the table's hash, which depends on every drawing's SVG; None: any.

    Raises:
        UserError: the dataset is absent, not all of it is there, or it is another one.
    """
    folder = Path(root) / FOLDER
    dataset = PublishedDataset(NAME, TITLE, Path(root), images, classes)
    table = folder / "drawings.csv"
    dataset.check_tables(table)
    rows = _read_table(dataset, table)
    paths = [folder / "images" / row["code"] / f"{row['set']}.png" for row in rows]
    labels = [dataset.parse_class(row["label"], table) for row in rows]
    try:
        index = dataset.build_index(paths, labels, [row["role"] for row in rows])
    except ValueError as error:
        raise dataset.damaged(table, str(error)) from error
    found = hashlib.sha256(table.read_bytes()).hexdigest()[:16]
    if fingerprint not in (None, found):
        raise UserError(
            f"data.root: {table} lists other drawings (fingerprint {found}, the published one is "
            f"{fingerprint}); {dataset.advice}; to use them: data.reader.fingerprint={found}"
        )
    return index


def _read_table(dataset: PublishedDataset, table: Path) -> list[dict[str, str]]:
    try:
        with open(table, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise dataset.damaged(table, str(error)) from error
    for number, row in enumerate(rows, start=2):
        if set(row) != set(COLUMNS) or None in row.values():
            raise dataset.damaged(table, f"line {number} is not {','.join(COLUMNS)}")
    return rows
