"""Pictures of emoji: rendering, and the choice of the drawings that make a benchmark."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from dml.core.errors import UserError
from dml.core.progress import show_progress
from studies.emoji.codes import EmojiNames, SetContent
from studies.emoji.sets import SETS

SIDE = 160  # pixels
THUMBNAIL = 32  # pixels of the copies that are compared
LEAST_DRAWINGS = 4  # of a class
ALIKE = 0.06  # root mean square of differences, of full scale, below which a redrawing is a copy
BLANK = 0.01  # standard deviation, of full scale
RESVG = "0.5.0"
NEWER = {one.name: one.newer for one in SETS if one.newer}


@dataclass(frozen=True)
class Drawing:
    """One drawing.

    Attributes:
        name: in its set.
        svg: the drawing as an SVG document.
        png: the bytes of its picture, `SIDE`×`SIDE` on white.
        thumbnail: `THUMBNAIL`×`THUMBNAIL`×3, 0–1.
    """

    name: str
    svg: str
    png: bytes
    thumbnail: np.ndarray

    @property
    def sha256(self) -> str:
        """First 16 digits of the document's hash."""
        return hashlib.sha256(self.svg.encode()).hexdigest()[:16]


Classes = dict[int, dict[str, Drawing]]


def check_renderer() -> None:
    """Checks that the renderer is installed.

    Raises:
        UserError: it is not, or is another version, which may draw other pixels.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise UserError(f"emoji: drawings are rendered by resvg: {_advice()}") from error
    if resvg_py.__version__ != RESVG:
        raise UserError(
            f"emoji: resvg-py {resvg_py.__version__} is installed; the dataset is defined by "
            f"the pixels of {RESVG}: {_advice()}"
        )


def _advice() -> str:
    return f"pip install resvg-py=={RESVG}"


def draw_classes(sets: Mapping[str, SetContent], found: EmojiNames) -> Classes:
    """Renders the drawings of every emoji and keeps those that can be told apart.

    Left out are blank drawings, drawings that a set uses for several code points, redrawings by the
    same designers that hardly differ from the newer one, and then code points with fewer than
    `LEAST_DRAWINGS` drawings.

    Args:
        sets: name of a set → its content.
        found: the drawings by code point.

    Returns:
        Code point → set → drawing, both in order.
    """
    codes = [code for code in sorted(found.names) if _count(found, code) >= LEAST_DRAWINGS]
    drawn: Classes = {}
    for code in show_progress(codes, "rendering emoji", len(codes)):
        drawn[code] = {
            one.name: _draw(sets[one.name].icons, found.drawings[one.name][code])
            for one in SETS
            if code in found.drawings[one.name]
        }
    return _choose(drawn)


def _count(found: EmojiNames, code: int) -> int:
    return sum(code in drawings for drawings in found.drawings.values())


def _draw(icons: Mapping[str, Any], name: str) -> Drawing:
    import resvg_py

    svg = _document(icons, name)
    png = resvg_py.svg_to_bytes(
        svg_string=svg, background="white", width=SIDE, height=SIDE, skip_system_fonts=True
    )
    pixels = np.asarray(Image.open(BytesIO(png)).convert("RGB"), np.float32) / 255
    block = SIDE // THUMBNAIL
    blocks = pixels.reshape(THUMBNAIL, block, THUMBNAIL, block, 3)
    return Drawing(name, svg, bytes(png), blocks.mean((1, 3)))


def _document(icons: Mapping[str, Any], name: str) -> str:
    """Returns the SVG document of a drawing, in the middle of a square."""
    icon = icons["icons"][name]
    left, top, width, height = (
        icon.get(key, icons.get(key, default))
        for key, default in (("left", 0), ("top", 0), ("width", 16), ("height", 16))
    )
    side = max(width, height)
    box = f"{left - (side - width) / 2:g} {top - (side - height) / 2:g} {side:g} {side:g}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box}" width="{SIDE}" height="{SIDE}">{icon["body"]}</svg>'
    )


def _choose(drawn: Classes) -> Classes:
    looks = Counter(
        (name, drawing.thumbnail.tobytes())
        for drawings in drawn.values()
        for name, drawing in drawings.items()
    )
    chosen: Classes = {}
    for code, drawings in drawn.items():
        kept = {
            name: drawing
            for name, drawing in drawings.items()
            if drawing.thumbnail.std() >= BLANK
            and looks[name, drawing.thumbnail.tobytes()] == 1
            and not _is_copy(drawing, drawings.get(NEWER.get(name, "")))
        }
        if len(kept) >= LEAST_DRAWINGS:
            chosen[code] = kept
    return chosen


def _is_copy(drawing: Drawing, newer: Drawing | None) -> bool:
    if newer is None:
        return False
    difference = drawing.thumbnail - newer.thumbnail
    return float(np.sqrt(np.mean(difference**2))) < ALIKE
