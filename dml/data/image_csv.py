"""CSV files that list images: path, label and, optionally, split."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dml.core.errors import UserError

NEEDED, OPTIONAL = ("path", "label"), ("split",)


@dataclass(frozen=True)
class ImageList:
    """Images that a user listed, not checked yet.

    Attributes:
        files: N paths.
        classes: N class names.
        splits: N roles, or None to split the classes in halves.
    """

    files: list[Path]
    classes: list[str]
    splits: list[str] | None = None


def read_image_csv(path: Path) -> ImageList:
    """Reads a CSV file in UTF-8 with a header, separated by commas, semicolons or tabs.

    Blanks around a value are ignored, and so are other columns; labels are names, never numbers.

    Args:
        path: the file; the paths in it are absolute, or relative to its folder.

    Raises:
        UserError: the file is not such a table; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        _refuse(path, f"line {line} is not UTF-8 text; save the table as CSV in UTF-8")
    except OSError as error:
        raise UserError(f"data.root: cannot read {path}: {error.strerror}") from error
    delimiter, columns = _read_header(path, text)
    wanted = [column for column in (*NEEDED, *OPTIONAL) if column in columns]
    values: dict[str, list[str]] = {column: [] for column in wanted}
    lines: dict[str, int] = {}
    rows = _read_rows(path, text, delimiter)
    next(rows)
    for line, row in rows:
        if len(row) > len(columns):
            _refuse(
                path,
                f"line {line} has {len(row)} values for {len(columns)} columns; put double quotes "
                f"around a value that contains '{delimiter}'",
            )
        found = dict(zip(columns, row, strict=False))
        for column in wanted:
            if not found.get(column):
                _refuse(path, f"line {line}: the {column} is missing; fill it in")
            values[column].append(found[column])
        file = os.path.normpath(found["path"])
        if file in lines:
            _refuse(path, f"line {line} names {file} again, after line {lines[file]}; drop one")
        lines[file] = line
    files = [path.parent / file for file in values["path"]]
    return ImageList(files, values["label"], values.get("split"))


def _read_header(path: Path, text: str) -> tuple[str, list[str]]:
    """Returns the delimiter and the names of the columns."""
    for delimiter in ";\t,":
        _, columns = next(_read_rows(path, text, delimiter), (1, []))
        if set(NEEDED) <= set(columns):
            break
    else:
        shown = ", ".join(columns) or "none"
        if len(shown) > 80 or not shown.isprintable():
            shown = "not those of a table"
        _refuse(
            path,
            f"the first line must name the columns path,label and, optionally, split; they are: "
            f"{shown}",
        )
    for column in (*NEEDED, *OPTIONAL):
        if columns.count(column) > 1:
            _refuse(path, f"{columns.count(column)} columns are named '{column}'; keep one")
    return delimiter, columns


def _read_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows that are not empty, each with the number of its (last) line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            stripped = [value.strip() for value in row]
            if any(stripped):
                yield reader.line_num, stripped
    except csv.Error as error:
        _refuse(path, f"line {reader.line_num} cannot be read ({error}); correct the line")


def _refuse(path: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {path}: {problem}")
