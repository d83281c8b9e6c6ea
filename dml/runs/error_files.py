"""Files of `dml evaluate` about each query: `errors.html`, a page, and `per_query.csv`, a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dml.config.schema import EvaluateConfig
from dml.core.atomic_io import write_text
from dml.core.csv_cells import write_csv
from dml.core.errors import UserError
from dml.core.outputs import begins_with, check_output, has_mark, text_mark
from dml.core.progress import show_task
from dml.data.decode import load_image
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex, Subset, file_of
from dml.data.protocol import Split
from dml.retrieval.embeddings import SplitEmbeddings, read_names
from dml.retrieval.query_scores import PER_QUERY, score_queries
from dml.runs.console import print_line
from dml.runs.error_page import ClosedSet, Evaluation, ShownImages, render_errors
from dml.runs.folder.exported_folder import ERRORS_OF, PAGE, TABLE


@dataclass(frozen=True)
class ErrorFiles:
    """The files that a command asks for; None: not asked for.

    Attributes:
        page, table: their paths.
        name: of what is evaluated.
        origin: by which a page of the same is known.
    """

    page: Path | None
    table: Path | None
    name: str
    origin: str

    @classmethod
    def check(
        cls, config: EvaluateConfig, folder: Path, name: str, prefix: str = "", origin: str = ""
    ) -> ErrorFiles:
        """Returns the files of an evaluation, which may be written.

        Args:
            config: of the command.
            folder: of the scores.
            name: of what is evaluated.
            prefix: of the names of the files.
            origin: by which a page of the same is known; empty: the name.

        Raises:
            UserError: there is another file of such a name.
        """
        page, table, origin = None, None, origin or name
        if config.errors:
            page = folder / f"{prefix}{PAGE}"
            ours = has_mark(f"{ERRORS_OF}{origin}")
            check_output(page, "errors", (), ours, config.overwrite, hint="overwrite=true")
        if config.per_query:
            table = folder / f"{prefix}{TABLE}"
            ours = begins_with(",".join(PER_QUERY))
            check_output(table, "per_query", (), ours, config.overwrite, hint="overwrite=true")
        return cls(page, table, name, origin)

    @property
    def wanted(self) -> bool:
        """True if there is a file to write."""
        return self.page is not None or self.table is not None

    def write(
        self,
        embeddings: SplitEmbeddings,
        queries: ShownImages,
        gallery: ShownImages,
        class_names: Sequence[str],
        backend: str = "auto",
        closed_set: ClosedSet | None = None,
    ) -> None:
        """Writes the files.

        Args:
            embeddings: of queries and gallery.
            queries, gallery: their images; both the same where the queries are the gallery.
            class_names: of the classes 0..C−1, if they are known.
            backend: see `dml.retrieval.retrieval_metrics`.
            closed_set: classes of the queries by training images, of a closed set.

        Raises:
            UserError: embeddings or labels that cannot be scored.
        """
        with show_task("scoring each query"):
            scores = score_queries(embeddings, backend=backend)
        images = (queries, gallery)
        evaluation = Evaluation(self.name, scores, *images, class_names, closed_set)
        if self.table is not None:
            write_text(self.table, write_csv(evaluation.per_query()))
            print_line(f"per query   {self.table}")
        if self.page is not None:
            with show_task("drawing the page of errors"):
                mark = text_mark(f"{ERRORS_OF}{self.origin}")
                page = render_errors(evaluation, datetime.now(), mark)
            write_text(self.page, page)
            print_line(f"errors      {self.page}")


def images_of_split(split: Split) -> tuple[ShownImages, ShownImages]:
    """Returns the images of the queries and of the gallery of a split."""
    shown = []
    for subset, names in zip(split.subsets, split.names, strict=True):
        labels = subset.index.labels[subset.rows]
        shown.append(ShownImages(names, labels, _loader(subset)))
    return shown[0], shown[-1]


def _loader(subset: Subset) -> Callable[[int], Tensor] | None:
    """Returns what loads the image of a row of a subset; None for features without image files."""
    index, rows = subset.index, subset.rows
    if index.features is None:
        source = ImageSource.of(index)
        return lambda row: source[rows[row]]
    return lambda row: _load_file(str(index.images[rows[row]]), index)


def _load_file(name: str, index: ImageIndex | None = None) -> Tensor:
    """Returns the pixels of an image file, upright, or of a box in one.

    Raises:
        UserError: it is no regular file, or cannot be decoded.
    """
    if not os.path.isfile(file_of(name)):
        raise UserError(f"data: {name} is no file")
    options: dict[str, Any] = {"apply_orientation": True}
    if index is not None:
        options |= {"background": index.background, "max_pixels": index.max_pixels}
    return load_image(Path(name), **options)


def read_stored_images(
    path: Path, embeddings: SplitEmbeddings
) -> tuple[ShownImages, ShownImages, list[str]]:
    """Returns the images of a file of embeddings, and the names of its classes.

    Images are loaded where a path of the file exists, as seen from the current folder.

    Args:
        path: of the file.
        embeddings: that it holds.
    """
    names = read_names(path, embeddings)
    parts = [(names.paths, embeddings.query_labels)]
    if names.gallery_paths is not None and embeddings.gallery_labels is not None:
        parts.append((names.gallery_paths, embeddings.gallery_labels))
    shown = []
    for paths, labels in parts:
        shown.append(ShownImages(paths, np.asarray(labels.cpu()), _loader_of_files(paths)))
    return shown[0], shown[-1], names.class_names


def _loader_of_files(paths: Sequence[str]) -> Callable[[int], Tensor] | None:
    """Returns what loads the image of a row; None: no path of a sample is a file."""
    step = max(1, len(paths) // 1000)
    exists = (os.path.isfile(file_of(path)) for path in paths[::step])
    if not any(exists):
        return None
    return lambda row: _load_file(paths[row])
