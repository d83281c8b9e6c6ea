"""Letters and digits in the fonts of matplotlib: a stand-in with unseen classes.

100 training and 100 test classes of 20 images; small enough for a CPU.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError, first_line
from dml.data.image_index import ImageIndex

SIDE = 32
CANVAS = 3 * SIDE  # drawn at three times the size and averaged down
FACES_NEEDED = 16


def read_glyphs(
    root: str | Path,
    seed: int = 0,
    classes: int = 200,
    per_class: int = 20,
    first_class: int = 0,
) -> ImageIndex:
    """Returns the index of the glyphs, which are drawn at first use and stored in `root/glyphs/`.

    Args:
        root: the folder of datasets.
        seed: seed of the jitter; another seed gives other images of the same characters.
        classes: number of characters.
        per_class: images of each character.
        first_class: number of characters to skip at the beginning of the list; 200 gives characters
            that the default dataset does not contain, for pretraining.

    Raises:
        UserError: the fonts contain too few characters, or the drawn images cannot be stored.
    """
    key = [seed, classes, per_class, first_class, features.version("freetype2")]
    key += [version("matplotlib"), version("pillow")]
    digest = hashlib.sha256(str(key).encode()).hexdigest()[:12]
    path = Path(root) / "glyphs" / f"{digest}.npy"
    if path.is_file():
        grey = np.load(path)
    else:
        grey = draw_glyphs(seed, classes, per_class, first_class)
        _store(grey, path)
    labels = np.repeat(np.arange(classes), per_class)
    return ImageIndex(
        name="glyphs",
        images=np.repeat(grey[..., None], 3, axis=3),
        labels=labels,
        roles=np.where(labels < classes // 2, "train", "test"),
        stand_in=True,
    )


def _store(grey: np.ndarray, path: Path) -> None:
    try:
        with replace_file(path) as temporary, open(temporary, "wb") as file:
            np.save(file, grey)
    except OSError as error:
        raise UserError(
            f"data.root: cannot write to {path.parent} ({first_line(error)}); set "
            f"data.root=<folder that you can write to>"
        ) from error


def draw_glyphs(seed: int, classes: int, per_class: int, first_class: int = 0) -> np.ndarray:
    """Draws `classes` × `per_class` grey images (uint8, N×32×32), class by class.

    The images of a class use the font faces that contain its character in turn, with random
    rotation, shear, scale and shift.
    """
    faces = text_faces()
    fonts = {path: _font(path) for path in faces}
    images = np.empty((classes * per_class, SIDE, SIDE), np.uint8)
    for label, character in enumerate(characters(first_class + classes)[first_class:]):
        holders = [fonts[path] for path, held in faces.items() if ord(character) in held]
        for item in range(per_class):
            rng = np.random.default_rng([seed, first_class + label, item])
            font = holders[item % len(holders)]
            images[label * per_class + item] = _draw(character, font, rng)
    return images


def characters(count: int) -> list[str]:
    """Returns the first `count` letters and digits, by code point, that are in enough fonts.

    Letters with accents and ligatures (which differ by only a few pixels) and letters that look
    exactly like an earlier one (Greek and Latin capitals) are skipped.

    Raises:
        UserError: the fonts contain too few characters.
    """
    faces = text_faces()
    holders = Counter(code for held in faces.values() for code in held)
    font = _font(next(path for path in faces if path.name == "DejaVuSans.ttf"))
    chosen: list[str] = []
    looks: set[bytes] = set()
    for code in sorted(code for code, number in holders.items() if number >= FACES_NEEDED):
        character = chr(code)
        plain = unicodedata.category(character) in ("Lu", "Ll", "Lo", "Nd")
        if not plain or unicodedata.decomposition(character):
            continue
        look = _upright(character, font).tobytes()
        if look not in looks:
            looks.add(look)
            chosen.append(character)
        if len(chosen) == count:
            return chosen
    raise UserError(
        f"data.reader.classes: the fonts contain {len(chosen)} such characters, not {count}"
    )


def text_faces() -> dict[Path, set[int]]:
    """Returns the font faces for running text: file → code points of its characters.

    These are DejaVu Sans, also monospaced, DejaVu Serif and STIX, each with bold and italic faces.
    """
    from dml.core.plotting import matplotlib  # late: it takes a part of a second

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    families = ("DejaVuSans", "DejaVuSerif", "STIXGeneral")
    faces = {}
    for path in sorted(folder.glob("*.ttf")):
        few_symbols = "Display" in path.name
        if path.name.startswith(families) and not few_symbols:
            glyph_of_code = matplotlib.ft2font.FT2Font(str(path)).get_charmap()
            faces[path] = set(glyph_of_code)
    return faces


def _font(path: Path) -> ImageFont.FreeTypeFont:
    # Every build of Pillow has the basic layout engine.
    return ImageFont.truetype(str(path), 60, layout_engine=ImageFont.Layout.BASIC)


def _upright(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    canvas = Image.new("L", (CANVAS, CANVAS))
    center = (CANVAS / 2, CANVAS / 2 + 20)  # the baseline, so that letters keep their heights
    ImageDraw.Draw(canvas).text(center, character, fill=255, font=font, anchor="ms")
    return canvas


def _draw(character: str, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> np.ndarray:
    rotation, shear = rng.uniform(-0.3, 0.3, 2)
    scale = rng.uniform(0.8, 1.25)
    shift = rng.uniform(-8, 8, 2)
    cos, sin = np.cos(rotation), np.sin(rotation)
    # Pillow expects the inverse map, from output to input, relative to the center.
    inverse = np.array([[cos, sin], [-sin, cos]]) @ np.array([[1, shear], [0, 1]]) / scale
    middle = np.full(2, CANVAS / 2)
    offset = middle - inverse @ (middle + shift)
    coefficients = (*inverse[0], offset[0], *inverse[1], offset[1])
    upright = _upright(character, font)
    moved = upright.transform(
        upright.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    return np.asarray(moved.reduce(CANVAS // SIDE))
