"""Colors, style and files of all figures."""

from __future__ import annotations

from pathlib import Path

from dml.core.atomic_io import replace_file
from dml.core.plotting import Axes, Figure, plt

# Colors of Okabe and Ito without yellow: distinct for color-blind readers, on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")
BLUE, ORANGE, GREEN, RED, GREY = "#3366aa", "#cc7722", "#2e8b57", "#bb3333", "#777777"


def tidy(axis: Axes) -> None:
    """Adds a pale grid and removes the frame above and to the right."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG and closes it."""
    with replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    plt.close(figure)
