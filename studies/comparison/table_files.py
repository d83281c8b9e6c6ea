"""The files of the tables of a comparison."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from dml.core.atomic_io import write_bytes
from dml.core.errors import UserError, first_line

METRICS = ("map_at_r", "precision_at_1")
SUFFIX = ".csv.xz"  # a quarter of the bytes; pandas reads it as it is
IMAGES = "(images)"  # row of `classes` with the number of images of each class
TYPES = {"arm": str, "edges": str, "declared": str, "features": str}
KEYS = ("arm", "search", "epochs")  # of a training run with its folds


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Writes tables (name → table) as `<name>.csv.xz`.

    Numbers have six digits; those of trials have all of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        digits = None if name == "trials" else "%.6g"
        text = table.to_csv(index=False, lineterminator="\n", float_format=digits)
        packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        write_bytes(folder / f"{name}{SUFFIX}", packed)


def read_tables(names: Iterable[str], folder: Path) -> dict[str, pd.DataFrame]:
    """Returns name → table of what `write_tables` wrote.

    Raises:
        UserError: a file is damaged.
    """
    return {name: _read_table(folder / f"{name}{SUFFIX}") for name in names}


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, dtype=TYPES)
    except (EOFError, lzma.LZMAError, ValueError) as error:  # of pandas too
        raise UserError(
            f"{path} is damaged ({first_line(error).rstrip('.')}); git checkout -- {path} "
            f"restores a published one"
        ) from error
