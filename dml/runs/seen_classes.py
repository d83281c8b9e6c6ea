"""Scores of classes that a network was trained on, which look like scores of unseen classes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.core.regular_files import open_regular
from dml.retrieval.embedding_file import PARQUET, read_columns, read_made_by
from dml.runs.folder.run_folder import RunFolder

SHOWN = 3  # names of classes in a note


def describe_seen(names: Iterable[str], run: str | Path) -> str | None:
    """Returns a note if a run was trained on classes of these names; None: no such class is known.

    Args:
        names: of the classes that are scored.
        run: the run folder. A run on a published dataset, or of an earlier version, tells no names.
    """
    scored = set(names)
    seen = sorted(scored & RunFolder(run).trained_classes())
    if not seen:
        return None
    shown = ", ".join(seen[:SHOWN])
    return (
        f"data: {len(seen)} of {len(scored)} classes have names of classes that were trained on "
        f"({shown}); if they are the same, these are no scores of unseen classes"
    )


def describe_seen_embeddings(path: Path) -> str | None:
    """Returns a note on a file of `dml.embed` or other software; see `describe_seen`.

    Rows of the split `train` count as seen, whatever the network. Another note says that queries
    and gallery of the array `splits` are scored together.
    """
    arrays = read_texts_of(path)
    made_by = read_made_by(arrays["made_by"])
    trained = int((arrays["splits"] == "train").sum())
    if trained:
        return (
            f"embeddings: {trained} of {len(arrays['splits'])} rows are of the split train; these "
            f"are no scores of unseen classes"
        )
    queries, gallery = (int((arrays["splits"] == name).sum()) for name in ("query", "gallery"))
    if queries and gallery:
        rows = len(arrays["splits"])
        return (
            f"embeddings: all {rows} rows are queries and gallery, also the {queries} of the split "
            f"query and the {gallery} of the split gallery; to search the gallery alone, store it "
            f"as gallery_embeddings and gallery_labels"
        )
    network: Any = made_by.get("network")
    if isinstance(network, str):
        with suppress(UserError, OSError, ValueError):  # the run may be gone
            return describe_seen(arrays["labels"].tolist(), network)
    return None


def read_texts_of(path: Path) -> dict[str, np.ndarray]:
    """Returns labels, splits and `made_by` of a file; empty arrays for those that are no texts."""
    names = ("labels", "splits", "made_by")
    if path.suffix == PARQUET:
        texts = dict.fromkeys(names, np.array([], dtype=str))
        for name, array in read_columns(path, names).items():
            if name == "made_by":
                texts[name] = array
            elif array.dtype.kind == "O":
                texts[name] = array.astype(str)
        return texts
    with open_regular(path) as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as file:
        return {name: _read_texts(file, name) for name in names}


def _read_texts(file: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    """Returns an array of texts; empty if the file has no such array, or one of another type."""
    if name in file:
        with suppress(Exception):  # of many classes: Python objects, a damaged member
            array = file[name]
            if array.dtype.kind == "U":
                return array
    return np.array([], dtype=str)
