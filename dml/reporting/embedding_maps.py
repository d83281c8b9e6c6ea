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

from dml.core.atomic_io import replace_file
from dml.core.installation import shell_command
from dml.reporting.curves import NamedGroup
from dml.reporting.picture import Picture, draw_picture
from dml.runs.embeddings import load_embeddings
from dml.runs.figures.embedding_map import MIN_POINTS, compute_map, draw_map, select_points


def embedding_maps(groups: Sequence[NamedGroup]) -> Iterator[Picture]:
    """Yields one picture per group whose first run has stored its test embeddings."""
    for name, group in groups:
        path = find_embeddings(group.first.folder)
        if path is None:
            continue
        points, labels = load_points(path)
        if len(points) < MIN_POINTS:
            continue
        cache = group.first.folder / "figures" / "embedding_map.npz"
        positions = load_or_compute_map(points, cache)
        count, classes = len(positions), len(np.unique(labels))
        yield draw_picture(
            partial(_draw, positions=positions, labels=labels),
            f"Test embeddings of {name} on {group.data} by t-SNE: {count} images, "
            f"{classes} classes",
            f"A map of {count} test images of {classes} unseen classes of {group.data}, embedded "
            f"by {name}; images of one class share color and shape.",
            height=5.0,
            raster=True,
        )


def list_save_commands(groups: Sequence[NamedGroup]) -> list[str]:
    """Returns the commands that store embeddings, for groups that have none."""
    return [
        f"{shell_command('evaluate')} run={group.first.folder} save=float16"
        for _, group in groups
        if find_embeddings(group.first.folder) is None
    ]


def find_embeddings(folder: Path) -> Path | None:
    """Returns the file of a run's test embeddings: of `evaluate.py`, or of its first model."""
    places = [folder / "embeddings.npz", *sorted(folder.glob("checkpoints/*/test_embeddings.npz"))]
    return next((path for path in places if path.exists()), None)


def load_points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings N×D and labels N of the classes to draw, from a file."""
    stored = load_embeddings(path, torch.device("cpu"))
    return select_points(stored.query.float().numpy(), stored.query_labels.numpy())


def load_or_compute_map(points: np.ndarray, path: Path) -> np.ndarray:
    """Returns `compute_map(points)`, kept in a file so that the next report need not compute it.

    Args:
        points: N×D.
        path: of the positions and a digest of the points they belong to.
    """
    key = sha256(np.ascontiguousarray(points).tobytes()).hexdigest()
    with suppress(OSError, ValueError, KeyError, BadZipFile), np.load(path) as stored:
        if str(stored["key"]) == key:
            return stored["positions"]
    positions = compute_map(points)
    # A folder that cannot be written to costs time only.
    with suppress(OSError), replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, key=key, positions=positions)
    return positions


def _draw(figure: Figure, positions: np.ndarray, labels: np.ndarray) -> None:
    draw_map(figure.subplots(), positions, labels)
