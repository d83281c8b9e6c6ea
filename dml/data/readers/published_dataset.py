"""Properties of a published dataset, and checks that it is complete."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.regular_files import check_regular
from dml.data.image_index import ImageIndex
from dml.data.readers.image_tree import find_missing

if TYPE_CHECKING:
    from pandas import DataFrame

RENDERED = ("emoji", "shapes")  # from packages, in a clone of the project


@dataclass(frozen=True)
class PublishedDataset:
    """A benchmark dataset in a folder of datasets, in the layout of its authors.

    Attributes:
        name: id, as in `data=<name>`.
        title: name in messages.
        root: the folder of datasets.
        images, classes: expected counts.
        recall_at: see `ImageIndex`.
    """

    name: str
    title: str
    root: Path
    images: int
    classes: int
    recall_at: tuple[int, ...] = (1, 2, 4, 8)

    @property
    def advice(self) -> str:
        """The command that prepares the dataset, for the end of messages."""
        return preparation_advice(self.name, self.root)

    @contextmanager
    def reading(self, table: Path) -> Iterator[None]:
        """Converts the errors of reading a table of the dataset to messages for users.

        Raises:
            UserError: the table is missing or damaged.
        """
        try:
            check_regular(table)
            yield
        except FileNotFoundError as error:
            raise UserError(
                f"data.root: {self.title} is not under {self.root} ({table} is missing); "
                f"{self.advice}"
            ) from error
        except UserError:
            raise
        except Exception as error:  # for damaged files scipy and pandas raise many classes
            raise UserError(
                f"data.root: {table} is damaged: {first_line(error)}; {self.advice}"
            ) from error

    def read_table(self, path: Path, **options: Any) -> DataFrame:
        """Returns a table of the dataset, read with options of `pandas.read_csv`.

        Raises:
            UserError: the table is missing or damaged.
        """
        with self.reading(path):
            import pandas as pd  # late: a missing table is reported before

            return pd.read_csv(path, **options)

    def build_index(
        self,
        files: Sequence[Path],
        classes: Sequence[int] | Sequence[str] | np.ndarray,
        roles: Sequence[str] | np.ndarray,
    ) -> ImageIndex:
        """Returns the index of the dataset, after a check of its counts.

        Args:
            files: N paths.
            classes: class of each image in the dataset; labels follow their sorted order.
            roles: role of each image.

        Raises:
            UserError: there are too few or too many images or classes.
        """
        names, labels = np.unique(np.asarray(classes), return_inverse=True)
        missing = find_missing(files)
        present = len(files) - len(missing)
        if (present, len(files), len(names)) != (self.images, self.images, self.classes):
            first, advice = "", self.advice
            if missing:
                first = f" (first missing: {missing[0]})"
            elif present:
                counts = f"data.reader.images={present} data.reader.classes={len(names)}"
                advice += f"; for another dataset in this layout set {counts}"
            raise UserError(
                f"data.root: {self.title} under {self.root} is not complete: found {present} of "
                f"{self.images} images ({len(files)} listed) and {len(names)} of {self.classes} "
                f"classes{first}; {advice}"
            )
        return ImageIndex(
            name=self.name,
            images=files,
            labels=labels.astype(np.int64),
            roles=np.asarray(roles, str),
            recall_at=self.recall_at,
            root=self.root,
        )

    def read_rendered(self, columns: tuple[str, str], fingerprint: str | None) -> ImageIndex:
        """Returns the index of a dataset that `prepare` renders: `<name>/drawings.csv`.

        The table has the columns `label`, `role` and two that name the folder and the file of an
        image, `<name>/images/<folder>/<file>.png`.

        Args:
            columns: of the folder and of the file.
            fingerprint: 16 digits of the table's hash; None: any.

        Raises:
            UserError: the dataset is missing or incomplete, or its fingerprint differs.
        """
        folder = self.root / self.name
        table = folder / "drawings.csv"
        dtypes = {"label": np.int64, **dict.fromkeys(columns, str)}
        rows = self.read_table(table, dtype=dtypes, keep_default_na=False)
        with self.reading(table):
            files = []
            for group, name in zip(rows[columns[0]], rows[columns[1]], strict=True):
                files.append(folder / "images" / group / f"{name}.png")
            index = self.build_index(files, rows["label"], rows["role"])
        actual = hashlib.sha256(table.read_bytes()).hexdigest()[:16]
        if fingerprint not in (None, actual):
            raise UserError(
                f"data.root: {table} lists other drawings (fingerprint {actual}, the published one "
                f"is {fingerprint}); {self.advice}; to use them: data.reader.fingerprint={actual}"
            )
        return index


def preparation_advice(name: str, root: str | Path) -> str:
    """Returns `run: <the command that prepares the dataset>`."""
    command = shell_command("prepare")
    if name in RENDERED:
        command = "python studies/prepare_drawings.py"
    command += f" {name}"
    if Path(root) != Path("data"):
        command += f" --root {shlex.quote(str(root))}"
    return f"run: {command}"
