"""Figures of a run: learning curves, stages of CCP, test images and their neighbors, positivity."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from PIL import Image, ImageOps
from torch import Tensor, nn

from dml.config.identity import method_name
from dml.config.schema import Config
from dml.core.atomic_io import write_text
from dml.core.metric_names import metric_label
from dml.core.progress import format_epoch, show_task
from dml.data.decode import load_image
from dml.data.image_index import Subset
from dml.data.published_dataset import find_missing
from dml.methods.metrix.analysis import Positivity, measure_positivity
from dml.retrieval import nearest_neighbors
from dml.retrieval.geometry import covering_radius, inter_class_distance
from dml.runs.embeddings import SplitEmbeddings, load_embeddings
from dml.runs.figures.drawing import BLUE, COLORS, GREEN, GREY, ORANGE, RED, plt, save, tidy
from dml.runs.job import STAGE_EMBEDDINGS, JobRun
from dml.runs.protocol import Split
from dml.tracking import History

CELL, MARGIN, FRAME = 132, 4, 4  # pixels of an image among its neighbors
MAP_POINTS, MAP_STAGES = 600, 4  # of a map: a few seconds; maps of stages
SHAPES = "os^D"  # with eight colors enough to tell the classes apart


def draw_test_images(model: JobRun, networks: Mapping[str, SplitEmbeddings], folder: Path) -> None:
    """Draws neighbors and a map of the test images, and the positivity of mixes if asked for.

    Args:
        model: with its best weights.
        networks: title → embeddings of the test images.
        folder: of the figures.

    Raises:
        UserError: the loss has no generic form with positives and negatives.
    """
    name = _title(model.config)
    with show_task("drawing the figures"):
        transform = model.transforms.test
        if _has_images(model.job.test):
            draw_neighbors(model.job.test, networks, transform, name, folder / "neighbors.png")
        classes = model.config.evaluation.map_classes
        draw_embedding_maps(networks, name, folder / "embedding_map.png", classes)
        if stages := _stages(model, [*networks.values()][-1]):
            draw_embedding_maps(stages, name, folder / "stage_maps.png", classes)
        if "positivity" in model.config.evaluation.measures:
            model.embedder.eval()
            loss: Any = model.method.loss
            curve = measure_positivity(loss, model.embedder, model.batches(1))
            draw_positivity(curve, folder / "positivity.png")


def _stages(model: JobRun, best: SplitEmbeddings) -> dict[str, SplitEmbeddings]:
    """Returns title → embeddings at the ends of the first stages of CCP, and the best ones."""
    files = sorted(model.checkpoints.folder.glob(STAGE_EMBEDDINGS.replace("{:02d}", "*")))
    networks = [load_embeddings(file, model.device) for file in files[: MAP_STAGES - 1]]
    titles = {}
    for number, network in enumerate([*networks, best] if networks else []):
        points = network.query, network.query_labels
        name = (
            "best network" if network is best else f"stage {number}" if number else "proxies alone"
        )
        score = 100 * model.evaluator(model.job.test).score(network)["map_at_r"]
        titles[
            f"{name}: MAP@R {score:.1f}\n"
            f"covering radius {covering_radius(*points):.2f}, "
            f"between classes {inter_class_distance(*points):.2f}"
        ] = network
    return titles


def _has_images(split: Split) -> bool:
    """Returns False for features whose images are elsewhere."""
    index = split.query.index
    return index.features is None or not find_missing([Path(file) for file in index.images])


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
    learning_curve(histories, select, title, folder / "learning_curve.png")
    if "stage" in histories[0]:
        stage_curve(histories[0], select, name, folder / "stages.png")


def _title(config: Config) -> str:
    return f"{method_name(config.loss['name'], config.method['name'])} on {config.data.name}"


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

    def column(subset: Subset, rows: np.ndarray, frames: list[str]) -> np.ndarray:
        pairs = zip(rows, frames, strict=True)
        return np.concatenate([_cell(subset, row, transform, frame) for row, frame in pairs])

    # A single image of all cells, since an axis for each of a hundred images would take seconds.
    columns = [column(split.query, queries, [GREY] * len(queries))]
    shares = []
    for title, embeddings in networks.items():
        neighbors = nearest_neighbors(embeddings.query, embeddings.gallery, k=k).indices[queries]
        labels = embeddings.query_labels
        found = labels if embeddings.gallery_labels is None else embeddings.gallery_labels
        correct = (found[neighbors] == labels[queries][:, None]).cpu().numpy()
        for rank, rows in enumerate(neighbors.cpu().numpy().T):
            frames = [GREEN if right else RED for right in correct[:, rank]]
            columns.append(column(gallery, rows, frames))
        shares.append(f"{title}: {correct.mean():.0%} are of the query's class")
    _draw_columns(columns, k, shares, name, path)


def draw_found(queries: Sequence[str], found: pd.DataFrame, path: Path) -> None:
    """Draws queries and the images that `dml.search` found for them, the nearest first.

    Images of the query's class are framed green, others red, and all grey if it is not known.

    Args:
        queries: files.
        found: k rows for each query, in their order, with query_label, label and path.
        path: PNG to write.
    """
    frames = np.where(found["label"] == found["query_label"], GREEN, RED)
    frames[found["query_label"].isna()] = GREY
    cells = [_file_cell(*pair) for pair in zip(found["path"], frames, strict=True)]
    k = len(found) // len(queries)
    columns = [np.concatenate([_file_cell(query, GREY) for query in queries])]
    columns += [np.concatenate(cells[rank::k]) for rank in range(k)]
    _draw_columns(columns, k, ["nearest images"], "", path)


def _draw_columns(
    columns: Sequence[np.ndarray], k: int, captions: Sequence[str], name: str, path: Path
) -> None:
    """Draws a column of queries and, below each caption, k columns of neighbors."""
    size = 0.85 * (1 + len(captions) * (1 + k)) - 0.65, 0.85 * len(columns[0]) / CELL + 0.85
    figure, axis = plt.subplots(figsize=size)
    parts, ticks, words = [columns[0]], [CELL / 2], ["query"]
    for number, caption in enumerate(captions):
        parts.append(np.full((len(columns[0]), CELL // 3, 3), 255, dtype=np.uint8))
        left = sum(part.shape[1] for part in parts)
        parts += columns[1 + number * k : 1 + (number + 1) * k]
        ticks += [left + rank * CELL + CELL / 2 for rank in range(k)]
        words += [str(rank + 1) for rank in range(k)]
        axis.text(left + k * CELL / 2, -0.5 * CELL, caption, ha="center", va="center", fontsize=9)
    figure.subplots_adjust(0.01, 0.01, 0.99, 1 - 0.85 / size[1])
    axis.imshow(np.concatenate(parts, axis=1))
    axis.set_xticks(ticks, words)
    axis.set_yticks([])
    axis.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axis.spines[:].set_visible(False)
    figure.suptitle(name, fontsize=10, y=0.995, va="top")
    save(figure, path)


def _cell(subset: Subset, row: int, transform: nn.Module, frame: str) -> np.ndarray:
    """Returns an image of a subset in a colored frame on white, CELL×CELL×3."""
    index = subset.index
    image = transform(load_image(index.images[subset.rows[row]], index.apply_orientation))
    return _framed(image, frame)


def _file_cell(file: str, frame: str) -> np.ndarray:
    return _framed(load_image(Path(file), apply_orientation=True), frame)


def _framed(image: Tensor, frame: str) -> np.ndarray:
    small = max(image.shape[1:]) < CELL / 2  # keep the pixels of a digit sharp
    resampling = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    side = (CELL - 2 * (MARGIN + FRAME),) * 2
    picture = ImageOps.pad(picture, side, resampling, color="white")
    return np.asarray(ImageOps.expand(ImageOps.expand(picture, FRAME, frame), MARGIN, "white"))


def draw_embedding_maps(
    networks: Mapping[str, SplitEmbeddings], name: str, path: Path, class_counts: Sequence[int]
) -> None:
    """Draws maps of the queries of a few classes by t-SNE, side by side.

    Several numbers of classes are columns, with a row for each network.

    t-SNE (van der Maaten and Hinton, JMLR 2008) has a fixed seed. Fewer than five images are not
    drawn: it needs neighbors.

    Args:
        networks: title → embeddings of the same images.
        name: title of the picture.
        path: PNG to write.
        class_counts: numbers of classes, the first ones of the queries.
    """
    from sklearn.manifold import TSNE  # late: a second

    labels = next(iter(networks.values())).query_labels.cpu().numpy()
    present = np.unique(labels)
    if len(labels) < 5:
        return
    counts = sorted({min(count, len(present)) for count in class_counts})
    panels = list(itertools.product(networks.items(), counts))
    columns = len(counts) if len(counts) > 1 else min(len(panels), 2)
    size = -(-len(panels) // columns), columns
    inches = 3.8 * columns, 4.0 * size[0] + 0.3
    figure, axes = plt.subplots(*size, figsize=inches, layout="constrained", squeeze=False)
    for axis, ((title, embeddings), count) in zip(axes.flat, panels, strict=False):
        rows = np.flatnonzero(np.isin(labels, classes := present[:count]))
        rows = rows[:: -(-len(rows) // MAP_POINTS)]
        points = embeddings.query.float().cpu().numpy()[rows]
        perplexity = min(30.0, (len(points) - 1) / 3)
        positions = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points)
        for number, label in enumerate(classes):
            members = positions[labels[rows] == label].T
            style = {"color": COLORS[number % len(COLORS)], "marker": SHAPES[number // len(COLORS)]}
            axis.scatter(*members, s=14, alpha=0.75, lw=0, **style)
        axis.set_aspect("equal", adjustable="datalim")
        axis.set(xticks=[], yticks=[])
        axis.set_title(f"{title}, {count} classes" if len(counts) > 1 else title, fontsize=10)
        axis.spines[:].set_visible(False)
    of = f"{len(rows)} test images of {count}" if len(counts) == 1 else "test images of"
    figure.suptitle(f"{name}: {of} unseen classes", fontsize=10)
    save(figure, path)


def learning_curve(histories: Sequence[pd.DataFrame], select: str, name: str, path: Path) -> None:
    """Draws scores and loss against epochs: a line per model, with its best evaluation.

    The loss is drawn without its constant, which would hide the part that training changes.

    Args:
        histories: rows of `history.csv` of each model; one may be empty: deleted after training.
        select: the metric that selects the best epoch.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    alone = len(histories) == 1
    alpha = 1 if alone else 0.5
    for number, rows in enumerate(rows for rows in histories if not rows.empty):
        _draw_scores(top, rows, "epoch", select, alpha, label=alone)
        if number == 0:
            before = 100 * rows[select][0]
            style = {"color": GREY, "lw": 1, "ls": "--", "zorder": 1}
            top.axhline(before, label=f"untrained {before:.1f}", **style)
        column = "loss_without_constant" if "loss_without_constant" in rows else "loss"
        losses = rows.set_index("epoch").get(column, pd.Series(dtype=float)).dropna()
        marker = "o" if len(losses) == 1 else None  # a single point has no line
        bottom.plot(losses, color=BLUE, lw=1.4, marker=marker, alpha=alpha)
    top.set(title=name, ylabel=f"{metric_label(select)} in percent, unseen classes")
    bottom.set(xlabel="epoch", ylabel="training loss")
    if top.has_data():
        top.legend()
    tidy(top)
    tidy(bottom)
    save(figure, path)


def _draw_scores(
    axis: Axes, rows: pd.DataFrame, x: str, select: str, alpha: float = 1.0, label: bool = True
) -> None:
    """Draws scores in percent against epochs or steps, and marks the best one of training."""
    best = rows.loc[rows[select].tail(max(len(rows) - 1, 1)).idxmax()]
    axis.plot(rows[x], 100 * rows[select], color=BLUE, lw=1.6, alpha=alpha)
    text = f"best {100 * best[select]:.1f} at {x} {format_epoch(best[x])}" if label else None
    axis.plot(best[x], 100 * best[select], "o", color=ORANGE, label=text)


def stage_curve(rows: pd.DataFrame, select: str, name: str, path: Path) -> None:
    """Draws scores against steps, with the ends of stages, and covering radii against stages.

    Args:
        rows: with `stage`, `radius_before` and `radius_after` after the first evaluation.
        select: the metric that ends stages.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), height_ratios=(2, 1), layout="constrained"
    )
    stages = rows.groupby("stage")
    first = stages.first()
    _draw_scores(top, rows, "step", select)
    for step in stages["step"].last()[:-1]:
        top.axvline(step, color=GREY, lw=1, ls=":")
    count = "1 stage" if len(first) == 1 else f"{len(first)} stages"
    score = f"{metric_label(select)} in percent"
    top.set(title=f"{name}: {count}", xlabel="step", ylabel=score)
    for key, color, text in (
        ("radius_before", GREY, "by the last proxies"),
        ("radius_after", BLUE, "with the new ones"),
    ):
        bottom.plot(first[key], "s-", color=color, lw=1.4, ms=4, label=text)
    bottom.set(xlabel="stage", ylabel="covering radius", xticks=first.index)
    bottom.set_ylim(bottom=0)
    top.legend()
    bottom.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    for axis in (top, bottom):
        tidy(axis)
    save(figure, path)


def draw_positivity(curve: Positivity, path: Path) -> None:
    """Draws the positivity of mixed embeddings against λ (metrix, Figure 2) as PNG.

    Columns of a CSV file of the same name: lambda (middle of the interval), measured, predicted.
    """
    table = pd.DataFrame({"measured": curve.measured.numpy(), "predicted": np.nan})
    table.index = pd.Index((table.index + 0.5) / len(table), name="lambda")
    if curve.predicted is not None:
        table["predicted"] = curve.predicted.numpy()
    write_text(path.with_suffix(".csv"), table.to_csv(float_format="%.6g", na_rep="nan"))
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.plot(table["measured"], "o-", color=BLUE, label="measured")
    if curve.predicted is not None:
        axes.plot(table["predicted"], "s--", color=ORANGE, label="predicted")
    label, limits = "share of mixes that act as positives", (-0.03, 1.03)  # markers at 0 and 1
    axes.set(xlabel="λ", ylabel=label, xlim=(0, 1), ylim=limits)
    axes.legend()
    save(figure, path)
