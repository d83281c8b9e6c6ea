"""Figures of a run: learning curves, stages of CCP, test images and their neighbors, positivity."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dml.config.identity import method_name
from dml.config.schema import Config
from dml.core.metric_names import is_score, metric_label
from dml.core.option_values import MAX_IMAGE_PIXELS, describe_classes
from dml.core.plain_text import shorten, show_line
from dml.core.progress import format_epoch, show_task
from dml.data.decode import BACKGROUND, load_image
from dml.data.image_dataset import ImageSource
from dml.data.image_index import Subset
from dml.data.protocol import Split
from dml.data.readers.image_tree import find_missing
from dml.methods.metrix.analysis import measure_positivity
from dml.retrieval import covering_radius, inter_class_distance, nearest_neighbors
from dml.retrieval.embeddings import SplitEmbeddings, load_embeddings
from dml.retrieval.pictures import CAPTION_LENGTH, draw_grids, draw_maps
from dml.runs.console import print_line
from dml.runs.context import JobModel
from dml.runs.drawing_guard import attempt
from dml.runs.figures.drawing import BLUE, GREEN, GREY, ORANGE, RED, Axes, plt, save, tidy
from dml.runs.figures.match_errors import MATCH_ERRORS, draw_match_errors, thresholds_of
from dml.tracking import History

GROUPS, GROUP_IMAGES = 20, 8  # of a picture of near-duplicates
MAP_STAGES = 4  # maps of stages
DPI, LARGEST_SIDE = 130, 60_000  # pixels per inch, and of a side: matplotlib draws up to 65,535
FRAMES = "frame green: of the query's class, red: of another"
BEFORE, AFTER = "before training", "after training"  # names of networks
WHITE, EMPTY = "#ffffff", torch.full((3, 1, 1), 255, dtype=torch.uint8)  # no image
WITHOUT_CONSTANT = "loss_without_constant"  # column of `history.csv`
PANELS: Any = {"figsize": (7, 5.5), "height_ratios": (2, 1), "layout": "constrained"}


def draw_test_images(
    model: JobModel,
    networks: Mapping[str, SplitEmbeddings],
    stages: Sequence[Path],
    folder: Path,
    measured: Mapping[str, float],
) -> None:
    """Draws neighbors and a map of the test images, and what `evaluation.measures` asks for.

    Args:
        model: with its best weights.
        networks: title → embeddings of the test images, those of the best weights last.
        stages: files of embeddings at the ends of the stages of CCP.
        folder: of the figures.
        measured: metrics of `evaluation.measures` by the best weights.
    """
    thresholds = thresholds_of(measured)
    with show_task("drawing the figures"):
        attempt("neighbors.png", lambda: _draw_test_neighbors(model, networks, folder))
        attempt("embedding_map.png", lambda: _draw_map(model, "embedding_map", networks, folder))
        attempt("stage_maps.png", lambda: _draw_stage_maps(model, networks, stages, folder))
        if "positivity" in model.config.evaluation.measures:
            attempt("positivity.png", lambda: _draw_positivity(model, folder))
        if thresholds:
            best, path = [*networks.values()][-1], folder / MATCH_ERRORS
            title = _title(model.config)
            attempt(MATCH_ERRORS, lambda: draw_match_errors(best, thresholds, title, path))


def _draw_test_neighbors(
    model: JobModel, networks: Mapping[str, SplitEmbeddings], folder: Path
) -> None:
    """Draws the neighbors of test images, unless they are features without image files."""
    index = model.job.test.query.index
    if index.features is None or not find_missing(list(map(Path, index.images))):
        transform, title = model.transforms.test, _title(model.config)
        draw_neighbors(model.job.test, networks, transform, title, folder / "neighbors.png")


def _draw_map(
    model: JobModel, name: str, networks: Mapping[str, SplitEmbeddings], folder: Path
) -> None:
    """Draws a map of the test images; a note says why a network has none."""
    classes = describe_classes(model.config.protocol.splits)
    title = f"{_title(model.config)}: test images of {classes}"

    def explain(network: str, reason: str) -> None:
        network = network.partition("\n")[0]
        print_line(f"note: {name}.png has no map of the network {network}: {reason}")

    figure = draw_maps(networks, title, model.config.evaluation.map_classes, explain)
    if figure is not None:
        save(figure, folder / f"{name}.png")


def _draw_stage_maps(
    model: JobModel,
    networks: Mapping[str, SplitEmbeddings],
    stages: Sequence[Path],
    folder: Path,
) -> None:
    """Draws maps at the ends of the first stages of CCP, if their embeddings were kept."""
    if not stages:
        return
    titled = {}
    for number, path in enumerate(stages[: MAP_STAGES - 1]):
        name = f"stage {number}" if number else "proxies alone"
        embeddings = load_embeddings(path, model.device)
        titled[_describe_stage(name, embeddings)] = embeddings
    best = list(networks.values())[-1]
    titled[_describe_stage("best network", best)] = best
    _draw_map(model, "stage_maps", titled, folder)


def _describe_stage(name: str, embeddings: SplitEmbeddings) -> str:
    points = embeddings.query, embeddings.query_labels
    radius, distance = covering_radius(*points), inter_class_distance(*points)
    return f"{name}\ncovering radius {radius:.2f}, between classes {distance:.2f}"


def _draw_positivity(model: JobModel, folder: Path) -> None:
    """Draws which mixes act as positives (metrix, Figure 2)."""
    model.embedder.eval()
    loss: Any = model.method.loss
    curve = measure_positivity(loss, model.embedder, model.whole_batches(1))
    curve.write(folder / "positivity.png")


def draw_curves(
    config: Config, history: Path, jobs: Iterable[tuple[int, int]], folder: Path
) -> None:
    """Draws the learning curves of all models (repeat, fold), and the stages of CCP."""
    name, select = _title(config), config.protocol.select_metric
    rows = History(history)
    histories = [pd.DataFrame(rows.job_rows(*key)) for key in jobs]
    if select not in histories[0]:  # nothing was scored
        return
    title = f"{name}, protocol {config.protocol.name}"
    curve, stages = folder / "learning_curve.png", folder / "stages.png"
    classes = describe_classes(config.protocol.splits)
    attempt(curve.name, lambda: learning_curve(histories, select, title, curve, classes))
    if "stage" in histories[0]:
        attempt(stages.name, lambda: stage_curve(histories[0], select, name, stages))


def _title(config: Config) -> str:
    return f"{method_name(config.loss['name'], config.method['name'])} on {config.data.variant}"


def draw_neighbors(
    split: Split,
    networks: Mapping[str, SplitEmbeddings],
    transform: nn.Module,
    name: str,
    path: Path,
    count: int = 8,
) -> None:
    """Draws the nearest neighbors of a few queries, which are spread evenly over the classes.

    Neighbors are framed green if their class is the query's, else red.

    Args:
        split: queries and gallery.
        networks: title of each network → its embeddings of the split.
        transform: of the images (to uint8 3×H×W), as for the network.
        name: title of the picture.
        path: PNG to write.
        count: number of queries, and of neighbors of each; of two networks five neighbors each.
    """
    gallery = split.gallery or split.query
    spread = np.linspace(0, len(split.query) - 1, min(count, len(split.query))).astype(int)
    queries = np.argsort(split.query.labels, kind="stable")[spread]
    k = min(count if len(networks) == 1 else 5, len(gallery) - (split.gallery is None))

    def images(subset: Subset, rows: np.ndarray) -> Iterator[Tensor]:
        source = ImageSource.of(subset.index)
        for row in subset.rows[rows]:
            yield transform(source[row])

    grids = {"query": (images(split.query, queries), [GREY] * len(queries))}
    for title, embeddings in networks.items():
        neighbors = nearest_neighbors(embeddings.query, embeddings.gallery, k=k).indices[queries]
        labels = embeddings.query_labels
        gallery_labels = embeddings.gallery_labels
        if gallery_labels is None:
            gallery_labels = labels
        right = (gallery_labels[neighbors] == labels[queries][:, None]).cpu().numpy()
        caption = f"{title}: {right.sum()} of {right.size} of the query's class"
        frames = np.where(right, GREEN, RED).ravel().tolist()
        grids[caption] = images(gallery, neighbors.cpu().numpy().ravel()), frames
    save(draw_grids(grids, f"{name} ({FRAMES})"), path)


def draw_search_results(
    queries: Sequence[str],
    neighbors: pd.DataFrame,
    path: Path,
    background: str = BACKGROUND,
    origin: str = "",
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> None:
    """Draws queries and the images that `dml.search` found for them, the nearest first.

    Images of the query's class are framed green, others red, and all grey if it is not known. Below
    each stand rank, distance, class and name of the file.

    Args:
        queries: files.
        neighbors: k rows for each query, in their order, with query_label, rank, distance, label,
            path and matches; those that do not match stay empty.
        path: PNG to write.
        background: color below transparent pixels.
        origin: see `save`.
        max_pixels: see `dml.data.decode.load_image`.
    """
    frames = np.where(neighbors["label"] == neighbors["query_label"], GREEN, RED)
    frames[neighbors["query_label"].isna()] = GREY
    frames[~neighbors["matches"]] = WHITE
    load = partial(load_image, apply_orientation=True, background=background, max_pixels=max_pixels)

    def load_each(files: Iterable[str]) -> Iterator[Tensor]:
        """Yields one image at a time: a hundred photos would take gigabytes."""
        return map(load, map(Path, files))

    def load_matches() -> Iterator[Tensor]:
        for file, matches in zip(neighbors["path"], neighbors["matches"], strict=True):
            yield load(Path(file)) if matches else EMPTY

    grids = {
        "query": (load_each(queries), [GREY] * len(queries)),
        "nearest images": (load_matches(), frames.tolist()),
    }
    captions = dict(zip(grids, _captions(queries, neighbors), strict=True))
    figure = draw_grids(grids, captions=captions)
    dpi = min(DPI, int(LARGEST_SIDE / max(figure.get_size_inches())))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # boxes stand for such letters
        save(figure, path, origin, dpi)


def _captions(queries: Sequence[str], neighbors: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Returns the texts below queries and neighbors; see `draw_search_results`."""
    k = len(neighbors) // len(queries)
    labels = neighbors["query_label"].iloc[::k]
    above = [_caption("query", *texts) for texts in zip(labels, queries, strict=True)]
    below = []
    for row in neighbors.itertuples():
        text = ""
        if row.matches:
            text = _caption(f"{row.rank} · {row.distance:.4g}", row.label, row.path)
        below.append(text)
    return above, below


def _caption(first: str, label: Any, path: Any) -> str:
    """Returns three lines: a text, the name of a class, which may be missing, and of a file."""
    name = "" if pd.isna(label) else str(label)
    lines = [first, name, os.path.basename(str(path)) or str(path)]
    return "\n".join(shorten(show_line(line), CAPTION_LENGTH) for line in lines if line)


def draw_groups(
    pairs: pd.DataFrame,
    path: Path,
    background: str = BACKGROUND,
    origin: str = "",
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> None:
    """Draws the first groups of near-duplicates: a row for each, in which the images of a pair that
    is across training and test, or across classes, have red frames, and others grey ones.

    Args:
        pairs: of `dml.find_duplicates`, at least one.
        path: PNG to write.
        background: color below transparent pixels.
        origin: see `save`.
        max_pixels: see `dml.data.decode.load_image`.
    """
    rows = []
    for _, group in pairs[pairs["group"] <= GROUPS].groupby("group"):
        rows.append(_frames_of_group(group))
    width = max(map(len, rows))
    load = partial(load_image, apply_orientation=True, background=background, max_pixels=max_pixels)

    def images(names: Iterable[str | None]) -> Iterator[Tensor]:
        for name in names:
            yield EMPTY if name is None else load(Path(name))

    firsts = [next(iter(frames.items())) for frames in rows]
    others: list[tuple[str | None, str]] = []
    for frames in rows:
        rest = [*frames.items()][1:]
        others += rest
        others += [(None, WHITE)] * (width - 1 - len(rest))
    grids = {
        "first image": (images(name for name, _ in firsts), [frame for _, frame in firsts]),
        "near-duplicates": (images(name for name, _ in others), [frame for _, frame in others]),
    }
    save(draw_grids(grids), path, origin)


def _frames_of_group(pairs: pd.DataFrame) -> dict[str, str]:
    """Returns path → color of the frame of the first images of a group."""
    frames: dict[str, str] = {}
    for pair in pairs.itertuples():
        color = RED if pair.across else GREY
        for name in (pair.path, pair.other_path):
            if len(frames) < GROUP_IMAGES:
                frames.setdefault(str(name), color)  # pairs across splits come first
    return frames


def learning_curve(
    histories: Sequence[pd.DataFrame],
    select: str,
    name: str,
    path: Path,
    classes: str = "unseen classes",
) -> None:
    """Draws scores and loss against epochs: a line per model, with its best evaluation.

    The loss is drawn without its constant, which would hide the part that training changes.

    Args:
        histories: rows of `history.csv` of each model.
        select: the metric that selects the best epoch.
        name: title of the picture.
        path: PNG to write.
        classes: those of the scores, in words.
    """
    figure, (top, bottom) = plt.subplots(2, 1, sharex=True, **PANELS)
    alone = len(histories) == 1
    loss_label = "training loss"
    for rows in histories:
        _draw_scores(top, rows, "epoch", select, alone)
        column = "loss"
        if WITHOUT_CONSTANT in rows:
            column = WITHOUT_CONSTANT
            loss_label = "training loss\nwithout its constant"
        losses = rows.reindex(columns=["epoch", column]).dropna()
        bottom.plot(*losses.to_numpy().T, ".-", color=BLUE, alpha=1 if alone else 0.5)
    before = _scale(select) * histories[0][select][0]
    top.axhline(before, label=f"untrained {before:.1f}", color=GREY, lw=1, ls="--", zorder=1)
    top.set(title=name, ylabel=f"{_score_label(select)}, {classes}")
    bottom.set(xlabel="epoch", ylabel=loss_label)
    top.legend()
    tidy(top)
    tidy(bottom)
    save(figure, path)


def _draw_scores(axis: Axes, rows: pd.DataFrame, x: str, select: str, alone: bool) -> None:
    """Draws scores in percent against epochs or steps, and marks the best one of training."""
    best = rows.loc[rows[select].tail(max(len(rows) - 1, 1)).idxmax()]
    scale = _scale(select)
    axis.plot(rows[x], scale * rows[select], color=BLUE, lw=1.6, alpha=1 if alone else 0.5)
    text = f"best {scale * best[select]:.1f} at {x} {format_epoch(best[x])}" if alone else None
    axis.plot(best[x], scale * best[select], "o", color=ORANGE, label=text)


def _scale(metric: str) -> float:
    """Returns the factor of a metric in a picture: scores are drawn in percent."""
    return 100.0 if is_score(metric) else 1.0


def _score_label(metric: str) -> str:
    label = metric_label(metric)
    return f"{label} in percent" if is_score(metric) else label


def stage_curve(rows: pd.DataFrame, select: str, name: str, path: Path) -> None:
    """Draws scores against steps, with the ends of stages, and covering radii against stages.

    Args:
        rows: with `stage`, `radius_before` and `radius_after` after the first evaluation.
        select: the metric that ends stages.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(2, 1, **PANELS)
    stages = rows.groupby("stage")
    _draw_scores(top, rows, "step", select, alone=True)
    for number, step in enumerate(stages["step"].last()[:-1]):
        label = None if number else "end of a stage"
        top.axvline(step, color=GREY, lw=1, ls=":", label=label)
    top.set(xlabel="step", ylabel=_score_label(select))
    top.set_title(f"{name}: {len(stages)} stage{'s' * (len(stages) > 1)}")
    top.legend()
    radii = stages[["radius_before", "radius_after"]].first()
    radii.columns = ["by the last proxies", "with the new ones"]
    radii.plot(ax=bottom, style="s-", color=[GREY, BLUE], xticks=radii.index)
    bottom.set(xlabel="stage", ylabel="covering radius")
    bottom.set_ylim(bottom=0)
    tidy(top)
    tidy(bottom)
    save(figure, path)
