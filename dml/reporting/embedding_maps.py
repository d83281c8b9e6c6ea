"""Maps of test embeddings by t-SNE, from the embeddings that a run has stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from dml.core.atomic_io import replace_file
from dml.reporting.groups import Group
from dml.reporting.pictures import COLORS, Picture, drawn
from dml.runs.scores.embeddings_file import load_embeddings

MOST_CLASSES, MOST_POINTS = 15, 1500
SHAPES = "os^D"  # with eight colors enough to tell 32 classes apart


def embedding_maps(named: Sequence[tuple[str, Group]]) -> Iterator[Picture]:
    """One picture per group whose first run has stored its test embeddings."""
    for name, group in named:
        path = stored_embeddings(group.first.folder)
        if path is None:
            continue
        points, labels = chosen(path)
        if len(points) < 5:  # t-SNE needs neighbors
            continue
        flat = remembered_map(points, group.first.folder / "figures" / "embedding_map.npz")
        classes = len(set(labels.tolist()))
        data = group.facts("").data
        yield drawn(
            partial(_draw, points=flat, labels=labels),
            f"Test embeddings of {name} on {data} by t-SNE: {len(flat)} images, {classes} classes",
            f"A map of {len(flat)} test images of {classes} unseen classes of {data}, embedded by "
            f"{name}; images of one class share color and shape.",
            height=5.0,
            raster=True,
        )


def without_embeddings(named: Sequence[tuple[str, Group]]) -> list[str]:
    """Commands that store the embeddings a map would need."""
    return [
        f"python evaluate.py run={group.first.folder} save=float16"
        for _, group in named
        if stored_embeddings(group.first.folder) is None
    ]


def stored_embeddings(folder: Path) -> Path | None:
    """The test embeddings of a run: of `evaluate.py`, or of its first model."""
    places = [folder / "embeddings.npz", *sorted(folder.glob("checkpoints/*/test_embeddings.npz"))]
    return next((path for path in places if path.exists()), None)


def chosen(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings n×D and labels n of the first classes, evenly thinned if there are too many."""
    embedded = load_embeddings(path, torch.device("cpu"))
    labels = embedded.query_labels.numpy()
    some = np.flatnonzero(np.isin(labels, np.unique(labels)[:MOST_CLASSES]))
    some = some[:: -(-len(some) // MOST_POINTS) or 1]
    return embedded.query.float().numpy()[some], labels[some]


def remembered_map(points: np.ndarray, path: Path) -> np.ndarray:
    """`flattened`, kept beside the run: drawing a report again need not lay points out again.

    Args:
        points: n×D.
        path: of the positions, with a digest of the points that they are of.
    """
    key = sha256(np.ascontiguousarray(points).tobytes()).hexdigest()
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path) as known:
        if str(known["key"]) == key:
            return known["positions"]
    flat = flattened(points)
    with suppress(OSError), replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, key=key, positions=flat)  # a folder that cannot be written costs time only
    return flat


def flattened(points: np.ndarray) -> np.ndarray:
    """Positions n×2 by t-SNE (van der Maaten and Hinton, JMLR 2008), the same at every call."""
    perplexity = min(30.0, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points)


def _draw(figure: Figure, points: np.ndarray, labels: np.ndarray) -> None:
    axis = figure.subplots()
    for number, label in enumerate(np.unique(labels)):
        own = points[labels == label]
        shape = SHAPES[number // len(COLORS) % len(SHAPES)]
        color = COLORS[number % len(COLORS)]
        axis.scatter(own[:, 0], own[:, 1], s=14, color=color, marker=shape, alpha=0.75, lw=0)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    axis.spines[:].set_visible(False)
