"""Pictures of embeddings: images beside their nearest neighbors, and maps of classes by t-SNE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms.functional import pad, pil_to_tensor, to_pil_image
from torchvision.utils import make_grid

from dml.core.counts import count_of
from dml.core.plotting import Axes, Figure
from dml.retrieval.embeddings import SplitEmbeddings

CELL, MARGIN, FRAME = 124, 8, 4  # pixels of an image in a grid
CELL_INCHES, CAPTIONED_INCHES = 0.85, 1.15  # width of an image; with captions, which need space
CAPTION = 42  # pixels below an image, for three lines
CAPTION_FONT = 6  # points
CAPTION_LENGTH = 21  # characters of a line that fit below an image
MAP_POINTS = 600  # of a map: a few seconds
MAP_LEAST = 5  # points: t-SNE needs neighbors
MAP_COLORS = 20  # of the color map; classes of equal colors have other markers
MARKERS = "os^Dv*"


def draw_grids(
    grids: Mapping[str, tuple[Iterable[Tensor], Sequence[str]]],
    title: str = "",
    captions: Mapping[str, Sequence[str]] | None = None,
) -> Figure:
    """Draws grids of images in frames side by side, with the same number of rows.

    Args:
        grids: title → images (uint8 3×H×W) row by row, and the colors of their frames; the first
            grid has one column: the queries, whose neighbors are in the same row of the others.
            Images may be decoded as they are taken: only one is in memory.
        title: of the picture.
        captions: title of each grid → texts of up to three lines below its images; None: no texts.
    """
    rows, pictures = len(next(iter(grids.values()))[1]), []
    below, inches = (0, CELL_INCHES) if captions is None else (CAPTION, CAPTIONED_INCHES)
    for images, colors in grids.values():
        cells = [pad(cell, [0, 0, 0, below], 255) for cell in map(_framed, images, colors)]
        picture = make_grid(cells, len(cells) // rows, MARGIN, pad_value=255)
        pictures.append(picture.permute(1, 2, 0).numpy())
    widths = [picture.shape[1] for picture in pictures]
    height = inches * (CELL + below) / CELL
    size = inches * sum(widths) / CELL + 0.3, height * rows + 0.7
    figure = Figure(size, layout="constrained")
    # An axis for each grid, not for each image: a hundred of them would take seconds.
    axes = figure.subplots(1, len(grids), width_ratios=widths)
    for axis, name, picture in zip(axes, grids, pictures, strict=True):
        axis.imshow(picture)
        axis.set_title(name, fontsize=9)
        axis.set_axis_off()
        if captions is not None:
            _write_captions(axis, captions[name], len(captions[name]) // rows)
    figure.suptitle(title, fontsize=10)
    return figure


def _write_captions(axis: Axes, texts: Sequence[str], columns: int) -> None:
    """Writes a text below each image of a grid, cut where its cell ends."""
    margin = MARGIN if len(texts) > 1 else 0  # make_grid puts none around a single image
    for number, text in enumerate(texts):
        row, column = divmod(number, columns)
        left = margin + column * (CELL + MARGIN)
        top = margin + row * (CELL + CAPTION + MARGIN) + CELL
        cell = Rectangle((left, top), CELL + MARGIN, CAPTION + MARGIN, transform=axis.transData)
        written = axis.text(left, top, text, fontsize=CAPTION_FONT, va="top", parse_math=False)
        written.set_clip_on(True)
        written.set_clip_path(cell)
        written.set_in_layout(False)  # hundreds of texts would be measured several times


def _framed(image: Tensor, frame: str) -> Tensor:
    """Returns an image in a colored frame, 3×CELL×CELL."""
    small = max(image.shape[1:]) < CELL / 2  # keep the pixels of a digit sharp
    resampling = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    side = (CELL - 2 * FRAME,) * 2
    picture = ImageOps.pad(_thickened(to_pil_image(image)), side, resampling, color="white")
    return pil_to_tensor(ImageOps.expand(picture, FRAME, frame))


def _thickened(image: Image.Image) -> Image.Image:
    """Returns an image of which no side is so short that it would vanish in a cell."""
    shortest = -(-max(image.size) // CELL)
    if min(image.size) >= shortest:
        return image
    width, height = image.size
    return image.resize((max(width, shortest), max(height, shortest)))


def draw_maps(
    networks: Mapping[str, SplitEmbeddings],
    title: str,
    class_counts: Sequence[int],
    on_omission: Callable[[str, str], None] = lambda name, reason: None,
) -> Figure | None:
    """Draws maps of the queries of a few classes by t-SNE: a column for each network.

    t-SNE (van der Maaten and Hinton, JMLR 2008) has a fixed seed.

    Args:
        networks: title → embeddings of the same images.
        title: of the picture; the projection is added.
        class_counts: numbers of classes, the first ones of the queries; a row for each.
        on_omission: called with the title of a network that has no map, and the reason.

    Returns:
        The figure; None without a network or if no network has a map. The panel of a network
        without a map says why (`why_no_map`).
    """
    if not networks:
        return None
    labels = next(iter(networks.values())).query_labels.cpu().numpy()
    if not len(labels):
        return None
    counts = sorted({min(count, len(np.unique(labels))) for count in class_counts})
    shape = len(counts), len(networks)
    figure = Figure((3.8 * shape[1], 4.0 * shape[0] + 0.5), layout="constrained")
    panels = product(counts, networks.items())
    axes = figure.subplots(*shape, squeeze=False).flat
    mapped = 0
    for axis, (count, (name, embeddings)) in zip(axes, panels, strict=True):
        classes = np.unique(labels)[:count]
        rows = np.flatnonzero(np.isin(labels, classes))
        rows = rows[:: -(-len(rows) // MAP_POINTS)]
        axis.set_title(
            f"{name}\n{count_of(len(rows), 'image')} of {count_of(count, 'class')}", fontsize=10
        )
        axis.set_axis_off()
        points = embeddings.query.float().cpu().numpy()[rows]
        if reason := why_no_map(points):
            axis.text(0.5, 0.5, f"no map: {reason}", ha="center", va="center", wrap=True)
            on_omission(name, reason)
            continue
        _scatter(axis, _map(points), np.searchsorted(classes, labels[rows]))
        axis.set_aspect("equal", adjustable="datalim")
        mapped += 1
    if not mapped:
        return None
    figure.suptitle(f"{title}\nt-SNE; a color for each class, no unit on the axes", fontsize=10)
    return figure


def _scatter(axis: Axes, positions: np.ndarray, numbers: np.ndarray) -> None:
    """Draws points at positions N×2: a color and a marker for each class number."""
    style: dict[str, Any] = {"cmap": "tab20", "vmin": 0, "vmax": MAP_COLORS - 1, "lw": 0}
    groups = numbers // MAP_COLORS
    for group in np.unique(groups):
        chosen = groups == group
        x, y = positions[chosen].T
        marker = MARKERS[group % len(MARKERS)]
        colors = numbers[chosen] % MAP_COLORS
        axis.scatter(x, y, s=14, c=colors, marker=marker, alpha=0.75, **style)


def why_no_map(points: np.ndarray) -> str:
    """Returns why points N×D cannot be given to t-SNE; empty if they can.

    `init="pca"` divides by the spread of the points, and the C code ends the process for the NaN
    that equal points give.
    """
    if len(points) < MAP_LEAST:
        return f"fewer than {MAP_LEAST} images"
    if not np.isfinite(points).all():
        return "embeddings are not finite"
    exact = points.astype(np.float64)
    exact /= np.abs(exact).max() or 1.0  # so that no square is out of range
    rounding = 4 * np.finfo(np.float32).eps * np.linalg.norm(exact)
    spreads = np.linalg.svd(exact - exact.mean(axis=0), compute_uv=False)
    directions = int((spreads > rounding).sum())
    if directions < 2:
        return "embeddings are equal" if directions == 0 else "embeddings lie on a line"
    return ""


def _map(points: np.ndarray) -> np.ndarray:
    """Returns positions N×2 of points by t-SNE."""
    from sklearn.manifold import TSNE  # late: a second

    # A power of two changes no digit, and keeps the squares of tiny and of huge values in range.
    _, exponent = np.frexp(np.abs(points).max())
    scaled = np.ldexp(points, -exponent)
    perplexity = min(30.0, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(scaled)
