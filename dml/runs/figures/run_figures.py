"""The figures that every run ends with: learning curves, and test images of its first model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dml.config.identity import method_name
from dml.config.schema import Config
from dml.core.metric_names import metric_label
from dml.core.progress import format_epoch, show_task
from dml.runs.embeddings import SplitEmbeddings
from dml.runs.figures.drawing import BLUE, GREY, ORANGE, plt, save, tidy
from dml.runs.figures.embedding_map import MIN_POINTS, draw_embedding_maps, select_points
from dml.runs.figures.neighbor_grid import draw_neighbors
from dml.runs.figures.positivity_curve import draw_model_positivity
from dml.runs.job import JobRun
from dml.tracking import History

FEW_POINTS = 600  # of a map that every run draws: a few seconds


def draw_test_images(model: JobRun, networks: Mapping[str, SplitEmbeddings], folder: Path) -> None:
    """Draws neighbors and a map of the test images, and the positivity of mixes if asked for.

    Args:
        model: with its best weights.
        networks: title → embeddings of the test images.
        folder: of the figures.
    """
    name = _title(model.config)
    with show_task("drawing the figures"):
        transform = model.transforms.test
        draw_neighbors(model.job.test, networks, transform, name, folder / "neighbors.png")
        panels = {}
        for title, embeddings in networks.items():
            vectors, classes = embeddings.query.float(), embeddings.query_labels
            panels[title] = select_points(vectors.cpu().numpy(), classes.cpu().numpy(), FEW_POINTS)
        points, labels = next(iter(panels.values()))
        if len(points) >= MIN_POINTS:
            about = f"{name}: {len(points)} test images of {len(np.unique(labels))} unseen classes"
            draw_embedding_maps(panels, about, folder / "embedding_map.png")
        if "positivity" in model.config.evaluation.measures:
            draw_model_positivity(model, folder / "positivity.png")


def draw_curves(
    config: Config, history: Path, jobs: Iterable[tuple[int, int]], folder: Path
) -> None:
    """Draws the learning curves of all models (repeat, fold), and the stages of CCP."""
    name, select = _title(config), config.protocol.select_metric
    rows = History(history)
    histories = [rows.job_rows(*key) for key in jobs]
    title = f"{name}, protocol {config.protocol.name}"
    learning_curve(histories, select, title, folder / "learning_curve.png")
    if any("stage" in row for row in histories[0]):
        stage_curve(histories[0], select, name, folder / "stages.png")


def _title(config: Config) -> str:
    return f"{method_name(config.loss['name'], config.method['name'])} on {config.data.name}"


def learning_curve(
    histories: Sequence[Sequence[dict[str, float]]], select: str, name: str, path: Path
) -> None:
    """Draws scores and loss against epochs: a line per job, with its best evaluation.

    Args:
        histories: per job its rows of `history.csv` as numbers.
        select: the metric that selects the best epoch.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    alone = len(histories) == 1
    alpha = 1 if alone else 0.5
    drawn = [rows for rows in histories if rows]  # a history may have been deleted after training
    for number, rows in enumerate(drawn):
        epochs = [row["epoch"] for row in rows]
        values = [100 * row[select] for row in rows]
        best = max(rows[1:] or rows, key=lambda row: row[select])
        label = f"best {100 * best[select]:.1f} at epoch {format_epoch(best['epoch'])}"
        top.plot(epochs, values, color=BLUE, lw=1.6, alpha=alpha)
        point = (best["epoch"], 100 * best[select])
        top.plot(*point, "o", color=ORANGE, label=label if alone else None)
        if number == 0:
            before = f"untrained {values[0]:.1f}"
            top.axhline(values[0], color=GREY, lw=1, ls="--", label=before, zorder=1)
        losses = [(row["epoch"], row["loss"]) for row in rows if "loss" in row]
        if losses:
            marker = "o" if len(losses) == 1 else None  # a single point has no line
            bottom.plot(*zip(*losses, strict=True), color=BLUE, lw=1.4, marker=marker, alpha=alpha)
    top.set_title(name, fontsize=11)
    top.set_ylabel(f"{metric_label(select)} in percent, unseen classes")
    if drawn:
        top.legend(frameon=False, fontsize=9)
    bottom.set_ylabel("training loss")
    bottom.set_xlabel("epoch")
    for axis in (top, bottom):
        tidy(axis)
    save(figure, path)


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
    top.set_ylabel(f"{metric_label(select)} in percent")
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
