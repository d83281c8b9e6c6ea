"""Figures of ccp: scores and radii of its stages, and proxies in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dml.runs.console import title
from dml.runs.figures.drawing import BLUE, GREY, ORANGE, plt, save, tidy


def stage_curve(rows: Sequence[dict[str, float]], select: str, name: str, path: Path) -> None:
    """Draws scores against steps, with the ends of stages, and covering radii against stages.

    Args:
        rows: of one job's `history.csv` as numbers, with `stage`, `radius_before` and
            `radius_after` in those after the first evaluation.
        select: the metric that ends stages.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), height_ratios=(2, 1), layout="constrained"
    )
    staged = [row for row in rows if "stage" in row]
    first_of = {int(row["stage"]): row for row in reversed(staged)}
    last_of = {int(row["stage"]): row for row in staged}
    stages = sorted(last_of)
    top.plot([row["step"] for row in rows], [100 * row[select] for row in rows], color=BLUE, lw=1.6)
    best = max(staged, key=lambda row: row[select])
    label = f"best {100 * best[select]:.1f} in stage {int(best['stage'])}"
    top.plot(best["step"], 100 * best[select], "o", color=ORANGE, label=label)
    for stage in stages[:-1]:
        top.axvline(last_of[stage]["step"], color=GREY, lw=1, ls=":")
    top.set_title(f"{name}: {len(stages)} stages", fontsize=11)
    top.set_xlabel("step")
    top.set_ylabel(f"{title(select)} in percent")
    top.legend(frameon=False, fontsize=9)
    for key, color, text in (
        ("radius_before", GREY, "by the last proxies"),
        ("radius_after", BLUE, "with the new ones"),
    ):
        radii = [first_of[stage][key] for stage in stages]
        bottom.plot(stages, radii, "s-", color=color, lw=1.4, ms=4, label=text)
    bottom.set_ylim(bottom=0)
    bottom.xaxis.get_major_locator().set_params(integer=True)
    bottom.set_xlabel("stage")
    bottom.set_ylabel("covering radius")
    bottom.legend(frameon=False, fontsize=9)
    for axis in (top, bottom):
        tidy(axis)
    save(figure, path)


@dataclass(frozen=True)
class ProxyPanel:
    """Embeddings n×2 with labels n; converged and next proxies C×k×2; the covering radius."""

    embeddings: np.ndarray
    labels: np.ndarray
    converged: np.ndarray
    proxies: np.ndarray
    radius: float


def proxy_map(panels: Sequence[ProxyPanel], name: str, path: Path) -> None:
    """Draws a panel per stage: converged proxies as squares, the next ones as circles.

    Args:
        panels: of stage 0 (proxies alone), then of the stages of ccp.
        name: title of the picture.
        path: PNG to write.
    """
    width = 3.3 * len(panels)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(width, 3.8), layout="constrained", squeeze=False
    )
    colors = plt.get_cmap("tab10")
    for number, (axis, panel) in enumerate(zip(axes[0], panels, strict=True)):
        axis.scatter(*panel.embeddings.T, c=colors(panel.labels % 10), s=3, alpha=0.35, lw=0)
        for label in range(len(panel.proxies)):
            style = {"color": colors(label % 10), "edgecolors": "black", "linewidths": 0.7}
            axis.scatter(*panel.converged[label].T, marker="s", s=34, **style)
            axis.scatter(*panel.proxies[label].T, marker="o", s=30, **style)
        what = "proxies alone" if number == 0 else f"stage {number}"
        axis.set_title(f"{what}: covering radius {panel.radius:.2f}", fontsize=9)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(f"{name}: converged proxies (squares), the next ones (circles)", fontsize=10)
    save(figure, path)
