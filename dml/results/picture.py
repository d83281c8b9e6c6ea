"""Pictures of a page, drawn once for a light and once for a dark background."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dml.runs.figures.drawing import COLORS, plt

LINES = ("-", "--", ":", "-.")
WIDTH = 6.2  # inches
PERCENT = ", percent"  # end of the label of an axis for scores

_COMMON: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.titlesize": 10.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_FOREGROUND = {"light": "#24292f", "dark": "#d8dee6"}
_FOREGROUND_KEYS: tuple[Any, ...] = (
    *("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
    "grid.color",
)


@dataclass(frozen=True)
class Picture:
    """One picture of a page.

    Attributes:
        title: text below the picture.
        alt: description for readers who cannot see it.
        light, dark: data URIs; photographs have no `dark`.
    """

    title: str
    alt: str
    light: str
    dark: str | None = None


def draw_picture(
    draw: Callable[[Figure], None], title: str, alt: str, height: float = 3.6, raster: bool = False
) -> Picture:
    """Returns a picture drawn for both backgrounds.

    Args:
        draw: adds axes and their content to an empty figure.
        title, alt: see `Picture`.
        height: inches; the width is the same for all.
        raster: PNG instead of SVG, for thousands of points.
    """
    kind, mime = ("png", "image/png") if raster else ("svg", "image/svg+xml")
    uris = []
    for color in _FOREGROUND.values():
        with plt.rc_context({**_COMMON, **dict.fromkeys(_FOREGROUND_KEYS, color)}):
            figure = plt.figure(figsize=(WIDTH, height), layout="constrained")
            draw(figure)
            stream = io.BytesIO()
            metadata = {} if raster else {"Date": None}
            figure.savefig(stream, format=kind, dpi=140, metadata=metadata)
            plt.close(figure)
        uris.append(_data_uri(stream.getvalue(), mime))
    return Picture(title, alt, *uris)


def load_picture(path: Path, title: str, alt: str) -> Picture:
    """Returns a PNG that a run has drawn."""
    return Picture(title, alt, _data_uri(path.read_bytes(), "image/png"))


def line_style(number: int) -> dict[str, Any]:
    """Returns color and dashes of the number-th line; 32 lines are distinct."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": LINES[number // len(COLORS) % len(LINES)],
    }


def add_legend(axis: Axes, names: Sequence[str]) -> None:
    """Adds a legend, beside the axis where it would cover the lines."""
    if len(names) <= 3:
        axis.legend()
    else:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def keep_percent(axis: Axes) -> None:
    """Cuts the vertical axis at 0 and 100, where a wide band would leave them."""
    low, high = axis.get_ylim()
    axis.set_ylim(max(low, 0.0), min(high, 100.0))


def describe_spread(what: str, repeats: Sequence[int]) -> str:
    """Returns the meaning of bands or whiskers for a caption; empty for single runs.

    Args:
        what: their name.
        repeats: of each line or point.
    """
    if max(repeats) == 1:
        return ""
    if max(repeats) == 2:
        return f"; {what}: standard deviation of two repeats"
    two = ", of two repeats their standard deviation" if 2 in repeats else ""
    return f"; {what}: 95 % intervals over repeats{two}"


def _data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"
