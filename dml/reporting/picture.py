"""Pictures for a page: drawn once on light and once on dark ground, as bytes."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # no display on a cluster
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colors without yellow: told apart by color-blind readers, on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")
LINES = ("-", "--", ":", "-.")
WIDTH = 6.2  # inches

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
_INK = {"light": "#24292f", "dark": "#d8dee6"}
_INKED: tuple[Any, ...] = (
    *("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
    "grid.color",
)


@dataclass(frozen=True)
class Picture:
    """One picture of a page.

    Attributes:
        title: shown below it.
        alt: what it shows, for those who cannot see it.
        light, dark: data URIs; no `dark` for photographs.
    """

    title: str
    alt: str
    light: str
    dark: str | None = None


def drawn(
    draw: Callable[[Figure], None], title: str, alt: str, height: float = 3.6, raster: bool = False
) -> Picture:
    """Calls `draw` with an empty figure for each ground.

    Args:
        draw: adds axes and what is in them.
        title, alt: see `Picture`.
        height: inches; the width is the same for all.
        raster: PNG instead of SVG, for thousands of points.
    """
    kind = "png" if raster else "svg"
    uris = []
    for ground in ("light", "dark"):
        ink = _INK[ground]
        with plt.rc_context({**_COMMON, **dict.fromkeys(_INKED, ink)}):
            figure = plt.figure(figsize=(WIDTH, height), layout="constrained")
            draw(figure)
            stream = io.BytesIO()
            metadata = {} if raster else {"Date": None}
            figure.savefig(stream, format=kind, dpi=140, metadata=metadata)
            plt.close(figure)
        uris.append(data_uri(stream.getvalue(), "image/png" if raster else "image/svg+xml"))
    return Picture(title, alt, *uris)


def stored(path: Path, title: str, alt: str) -> Picture:
    """A PNG that a run has drawn."""
    return Picture(title, alt, data_uri(path.read_bytes(), "image/png"))


def data_uri(content: bytes, kind: str) -> str:
    """The content itself as an address, so that a page needs no other file."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def style(number: int) -> dict[str, Any]:
    """Color and dashes of the number-th line; 32 lines differ."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": LINES[number // len(COLORS) % len(LINES)],
    }


def legend(axis: Axes, names: Sequence[str]) -> None:
    """A legend, beside the axis where it would cover the lines."""
    if len(names) <= 3:
        axis.legend()
    else:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
