"""Pictures of a page, as SVG in colors for a light and for a dark background."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label
from dml.runs.figures.drawing import COLORS, plt

LINES = ("-", "--", ":", "-.")
ON_LIGHT, ON_DARK = "#24292f", "#d8dee6"  # texts and axes; no other element has the first
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",  # the same picture gives the same bytes
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **{f"{name}.color": ON_LIGHT for name in ("text", "xtick", "ytick", "grid")},
    **{f"axes.{name}color": ON_LIGHT for name in ("label", "edge")},
}
SPREAD = "bands and whiskers: 95 % intervals over repeats, of two repeats the standard deviation"


@dataclass(frozen=True)
class Picture:
    """One picture of a page.

    Attributes:
        title: text below the picture.
        alt: description for readers who cannot see it.
        light, dark: data URIs; a PNG that a run has drawn has no `dark`.
    """

    title: str
    alt: str
    light: str
    dark: str | None = None


def draw_picture(
    draw: Callable[[Figure], None], title: str, alt: str, height: float = 3.6
) -> Picture:
    """Returns a picture.

    Args:
        draw: adds axes and their content to an empty figure.
        title, alt: see `Picture`.
        height: inches; the width is the same for all.
    """
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(6.2, height), layout="constrained")
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    light = stream.getvalue()
    dark = light.replace(ON_LIGHT.encode(), ON_DARK.encode())
    return Picture(title, alt, *(_data_uri(svg, "image/svg+xml") for svg in (light, dark)))


def load_picture(path: Path, title: str) -> Picture:
    """Returns a PNG that a run has drawn."""
    return Picture(title, title, _data_uri(path.read_bytes(), "image/png"))


def _data_uri(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def line_style(number: int) -> dict[str, Any]:
    """Returns color and dashes of the number-th line; 32 lines are distinct."""
    dashes = LINES[number // len(COLORS) % len(LINES)]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dashes}


def value_label(metric: str) -> str:
    """Returns the label of an axis for a metric."""
    return f"{metric_label(metric)}, percent" if is_score(metric) else metric.replace("_", " ")


def add_labels(axis: Axes, x_label: str, metric: str) -> None:
    """Adds the labels of the axes, and a legend, beside the axis where it would cover lines.

    Scores are kept within 0 and 100, which a wide band would leave.
    """
    axis.set_xlabel(x_label)
    axis.set_ylabel(value_label(metric))
    if is_score(metric):
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0.0), min(high, 100.0))
    if len(axis.get_legend_handles_labels()[0]) > 3:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axis.legend()
