"""Pictures of docs/ as small files: PNG with a palette, a quarter of matplotlib's size."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from dml.core.atomic_io import replace_file
from dml.runs.figures.drawing import Figure, save

DPI = 100
COLORS = 32  # enough for lines and text; fields of color and drawings need more


def save_small(figure: Figure, path: Path, colors: int = COLORS) -> None:
    """Writes a figure as PNG with a palette, and closes it.

    Args:
        figure: to write.
        path: of the PNG.
        colors: of the palette, 2 to 256.
    """
    save(figure, path, dpi=DPI)
    shrink(path, colors)


def shrink(path: str | Path, colors: int = COLORS, width: int | None = None) -> None:
    """Replaces a PNG by a smaller one, and keeps its text chunks.

    For pictures that a run has drawn:
    `python -c "from studies.pictures import shrink; shrink('docs/neighbors.png', width=1040)"`

    Args:
        path: of the PNG.
        colors: of the palette, 2 to 256.
        width: largest width in pixels; None: as it is.
    """
    texts = PngInfo()
    with Image.open(path) as picture:
        for key, text in picture.info.items():
            if isinstance(key, str) and isinstance(text, str):
                texts.add_text(key, text)
        small = picture.convert("RGB")
    if width is not None and width < small.width:
        height = round(small.height * width / small.width)
        small = small.resize((width, height), Image.Resampling.LANCZOS)
    # Maximum coverage keeps the hues of thin lines, which the default, median cut, turns gray; the
    # means of a step of k-means keep those of areas.
    method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    small = small.quantize(colors, method, kmeans=1, dither=dither)
    with replace_file(path) as temporary:
        small.save(temporary, "PNG", optimize=True, pnginfo=texts)
