"""Colors and dashes of curves: a loss has the same color in all pictures of a report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from dml.runs.figures.drawing import COLORS

# The losses that are compared most often; they have these colors in all pictures of all folders.
FIXED = dict(
    zip(
        ("mfcwms", "proxy_anchor", "contrastive", "ms", "mfcont", "triplet", "pfml", "c1"),
        COLORS,
        strict=True,
    )
)
Dashes = str | tuple[int, tuple[int, ...]]  # as the `linestyle` of matplotlib
DASHES: tuple[Dashes, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (5, 1)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (1, 3)),
    (0, (9, 3, 2, 3)),
)


class Style(NamedTuple):
    """Color and dashes of a curve."""

    color: str
    dashes: Dashes


def loss_colors(losses: Iterable[str]) -> dict[str, str]:
    """Returns loss → color.

    A loss of `FIXED` has its color. The others share those that remain, in their order; where none
    remains, all colors in turn.
    """
    names = list(dict.fromkeys(losses))
    colors = {name: FIXED[name] for name in names if name in FIXED}
    remaining = [color for color in COLORS if color not in colors.values()]
    others = cycle([*remaining, *COLORS])
    for name in names:
        if name not in colors:
            colors[name] = next(others)
    return colors


def line_styles(lines: Mapping[str, str], colors: Mapping[str, str]) -> dict[str, Style]:
    """Returns line → style: the color of its loss, and dashes where lines have the same color.

    Lines that differ in no loss have a color each. So have lines of which more share a color than
    there are dashes.

    Args:
        lines: name of the line → its loss, in the order of the legend.
        colors: of `loss_colors`, for these losses at least.
    """
    counts = Counter(colors[loss] for loss in lines.values())
    is_one_loss = len(set(lines.values())) == 1 < len(lines)
    if is_one_loss or max(counts.values(), default=0) > len(DASHES):
        return _numbered_styles(list(lines))
    styles = {}
    drawn: dict[str, int] = defaultdict(int)
    for line, loss in lines.items():
        color = colors[loss]
        styles[line] = Style(color, DASHES[drawn[color]])
        drawn[color] += 1
    return styles


def _numbered_styles(lines: Sequence[str]) -> dict[str, Style]:
    """Returns a style for each line by its number; 64 lines are distinct."""
    styles = {}
    for number, line in enumerate(lines):
        dashes = DASHES[number // len(COLORS) % len(DASHES)]
        styles[line] = Style(COLORS[number % len(COLORS)], dashes)
    return styles
