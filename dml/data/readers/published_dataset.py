"""Properties of a published dataset, and checks that it is complete."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from PIL import Image

from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.regular_files import check_regular
from dml.data.image_index import ImageIndex, join_box
from dml.data.readers.image_tree import find_missing
from dml.data.readers.layouts import ImageTable, Layout, LayoutMatch, find_layouts

if TYPE_CHECKING:
    from pandas import DataFrame

SIZED = 200  # images whose size is compared with their box
BOX_MARGIN = 2  # pixels by which a published box may leave its image
BOXES_OUTSIDE = 0.1  # share of boxes that leave their image in tables of another copy
RENDERED = ("emoji", "shapes")  # from packages, in a clone of the project


@dataclass(frozen=True)
class PublishedDataset:
    """A benchmark dataset in a folder of datasets.

    Attributes:
        name: id, as in `data=<name>`.
        title: name in messages.
        root: the folder of datasets.
        images, classes: expected counts.
        recall_at: see `ImageIndex`.
        crop: "boxes": images are cropped to their published boxes; None: they are whole.
        resolution: "highres": images of another size than the papers'; None: those of the papers.
    """

    name: str
    title: str
    root: Path
    images: int
    classes: int
    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    crop: str | None = None
    resolution: str | None = None

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

    def read_layout(self, layouts: Sequence[Layout]) -> ImageIndex:
        """Returns the index of the dataset in the first of its layouts that is there.

        Args:
            layouts: of the dataset; the first is the published one.

        Raises:
            UserError: no layout is complete, a table is damaged, or files are missing.
        """
        matches = find_layouts(self.root, layouts)
        complete = [match for match in matches if not match.missing]
        if not complete:
            self._refuse(layouts, matches)
        chosen, table = self._read_first(complete)
        self._check_boxes(table, chosen)
        is_published = chosen.layout is layouts[0]
        notes = list(table.notes)
        if not is_published:
            notes.append(f"data: {self.title} is read as {chosen.layout.title} in {chosen.folder}")
        notes += _describe_others(chosen, complete, table.files)
        if self.crop is not None:
            files, note = self._crop(table, chosen)
            table = table._replace(files=files)
            notes.append(note)
        # Relative to this folder, the files have the same names wherever they are.
        root = chosen.folder.parent if is_published else chosen.folder
        return self.build_index(table._replace(notes=tuple(notes)), root)

    def _read_first(self, complete: Sequence[LayoutMatch]) -> tuple[LayoutMatch, ImageTable]:
        """Returns the first layout that has an image, and its table.

        A table may lie beside the images of another layout; if none has an image, the first counts.
        """
        first = None
        for match in complete:
            table = match.layout.read(self, match.folder)
            if any(map(os.path.exists, table.files)):
                return match, table
            first = first or (match, table)
        assert first is not None
        return first

    def _check_boxes(self, table: ImageTable, chosen: LayoutMatch) -> None:
        """Checks that boxes are inside their images, of some of them.

        Raises:
            UserError: many are not, so that tables and images are of different copies.
        """
        if table.boxes is None:
            return
        step = max(1, len(table.files) // SIZED)
        outside = looked_at = 0
        for file, (_, _, right, bottom) in list(zip(table.files, table.boxes, strict=True))[::step]:
            size = _read_size(file)
            if size is None or np.isnan(right):
                continue
            looked_at += 1
            outside += right > size[0] + BOX_MARGIN or bottom > size[1] + BOX_MARGIN
        if outside > BOXES_OUTSIDE * looked_at:
            raise UserError(
                f"data.root: {chosen.layout.title} in {chosen.folder}: {outside} of {looked_at} "
                f"boxes leave their image: the tables are of another copy than the images, and "
                f"number them differently; take both from the same copy, or {self.advice}"
            )

    def _refuse(self, layouts: Sequence[Layout], matches: Sequence[LayoutMatch]) -> NoReturn:
        """Raises UserError with what the first layout lacks that is there in part."""
        published = layouts[0]
        if not matches:
            home = self.root / published.home
            matches = [LayoutMatch(published, home, published.missing_parts(home))]
        first = matches[0]
        if first.layout is published:
            missing_file = first.folder / first.missing[0]
            raise UserError(
                f"data.root: {self.title} is not under {self.root} ({missing_file} is missing); "
                f"{self.advice}"
            )
        missing = " and ".join(first.missing)
        unpack = ""
        for name in first.missing:
            if (first.folder / f"{name}.zip").is_file():
                unpack = f"unpack {name}.zip, "
        raise UserError(
            f"data.root: {self.title} is not complete: {first.folder} has {first.layout.title} "
            f"without {missing}; {unpack}add what is missing, or {self.advice}"
        )

    def _crop(self, table: ImageTable, chosen: LayoutMatch) -> tuple[list[Path], str]:
        """Returns the files of a table with their boxes, and a note.

        Raises:
            UserError: there are no boxes.
        """
        if table.boxes is None:
            raise UserError(
                f"data.crop: {chosen.layout.title} in {chosen.folder} has no published boxes; "
                f"leave data.crop out, or {self.advice}"
            )
        files = []
        whole = 0
        for file, box in zip(table.files, table.boxes, strict=True):
            left, top, right, bottom = box
            if right > left and bottom > top:  # False for NaN
                files.append(join_box(file, box))
            else:
                files.append(file)
                whole += 1
        note = "data.crop: images are cropped to their published boxes"
        if whole:
            note += f"; {whole} of {len(files)} have none and stay whole"
        return files, note

    def build_index(self, table: ImageTable, root: Path | None = None) -> ImageIndex:
        """Returns the index of the dataset, after a check of its counts.

        Args:
            table: the images.
            root: folder to which the names of files are relative in a fingerprint; None: `root`.

        Raises:
            UserError: there are too few or too many images or classes.
        """
        files = table.files
        names, labels = np.unique(np.asarray(table.classes), return_inverse=True)
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
        variants = [self.name, self.crop, self.resolution]
        return ImageIndex(
            name="_".join(filter(None, variants)),
            images=files,
            labels=labels.astype(np.int64),
            roles=np.asarray(table.roles, str),
            recall_at=self.recall_at,
            root=self.root if root is None else root,
            notes=table.notes,
            categories=table.categories,
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
            index = self.build_index(ImageTable(files, rows["label"], rows["role"]))
        actual = hashlib.sha256(table.read_bytes()).hexdigest()[:16]
        if fingerprint not in (None, actual):
            raise UserError(
                f"data.root: {table} lists other drawings (fingerprint {actual}, the published one "
                f"is {fingerprint}); {self.advice}; to use them: data.reader.fingerprint={actual}"
            )
        return index


def _describe_others(
    chosen: LayoutMatch, complete: Sequence[LayoutMatch], files: Sequence[Path]
) -> list[str]:
    """Returns a note on further layouts that are there, if there are any.

    Args:
        chosen: the layout that is read.
        complete: the layouts that are there.
        files: the images that are read; a layout of the first of them is no other copy.
    """
    others = []
    for other in complete:
        has_first = any(other.layout.holds(other.folder, file) for file in files[:1])
        if not has_first and not _is_same_copy(chosen, other):
            others.append(f"{other.layout.title} in {other.folder}")
    if not others:
        return []
    shown = " or ".join(others)
    return [f"data: reads {chosen.layout.title} in {chosen.folder}, and not {shown}"]


def _read_size(file: Path) -> tuple[int, int] | None:
    """Returns width and height of an image from its header; None if it cannot be read."""
    try:
        with Image.open(file) as image:
            return image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def _is_same_copy(first: LayoutMatch, other: LayoutMatch) -> bool:
    """Returns whether two matches are of the same files: `car_data/train/` and `train/` in it."""
    if first.layout.title != other.layout.title:
        return False
    inside = other.folder.is_relative_to(first.folder)
    return inside or first.folder.is_relative_to(other.folder)


def preparation_advice(name: str, root: str | Path) -> str:
    """Returns `run: <the command that prepares the dataset>`."""
    command = shell_command("prepare")
    if name in RENDERED:
        command = "python studies/prepare_drawings.py"
    command += f" {name}"
    if Path(root) != Path("data"):
        command += f" --root {shlex.quote(str(root))}"
    return f"run: {command}"
