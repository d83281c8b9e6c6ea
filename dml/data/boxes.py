"""Parts of images: `photo.jpg#10,20,90,80` is the box of `photo.jpg` from (10, 20) to (90, 80)."""

from __future__ import annotations

import os
import re
from pathlib import Path

Box = tuple[int, int, int, int]  # x_1, y_1, x_2, y_2 in pixels of the upright image
COLUMNS = ["x_1", "y_1", "x_2", "y_2"]  # of a CSV file
NAME = re.compile(r"(.+)#(\d+),(\d+),(\d+),(\d+)")


def split_box(image: str | Path) -> tuple[Path, Box | None]:
    """Returns the file of an image, and its box if the name has one."""
    if not (found := NAME.fullmatch(os.fspath(image))):
        return Path(image), None
    file, left, top, right, bottom = found.groups()
    return Path(file), (int(left), int(top), int(right), int(bottom))
