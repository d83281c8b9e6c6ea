"""CSV files that list images: path, label and, optionally, split."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from dml.core.errors import UserError


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
    header = text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    values: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        if not {"path", "label"} <= set(columns):
            _refuse(
                path,
                f"the first line must name the columns path,label and, optionally, split; they "
                f"are: {', '.join(columns)[:80] or 'none'}",
            )
        reader.fieldnames = columns
        values = {name: [] for name in ("path", "label", "split") if name in columns}
        for row in reader:
            line, surplus = reader.line_num, row.pop(None, None)
            if surplus:
                _refuse(
                    path,
                    f"line {line} has more than {len(columns)} values; put double quotes around a "
                    f"value that contains '{delimiter}'",
                )
            cells = {name: (cell or "").strip() for name, cell in row.items()}
            if not any(cells.values()):
                continue
            for column, known in values.items():
                if not cells[column]:
                    _refuse(path, f"line {line}: the {column} is missing; fill it in")
                known.append(cells[column])
            file = os.path.normpath(cells["path"])
            if file in lines:
                _refuse(path, f"line {line} names {file} again, after line {lines[file]}; drop one")
            lines[file] = line
    except csv.Error as error:
        _refuse(path, f"line {reader.line_num} cannot be read ({error}); correct the line")
    files = [path.parent / file for file in values["path"]]
    return ImageList(files, values["label"], values.get("split"))


def _refuse(path: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {path}: {problem}")
