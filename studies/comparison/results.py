"""What a comparison keeps of its training runs: tables of scores, classes, curves and trials."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from studies.comparison.table_checks import check_tables
from studies.comparison.table_files import (
    IMAGES,
    KEYS,
    METRICS,
    SUFFIX,
    read_tables,
    write_tables,
)


class Results(NamedTuple):
    """Tables of a comparison; `arm` and `search` name a search with its training runs.

    Attributes:
        scores: a row per arm, search, length in epochs and fold: test and validation scores in
            percent, steps, processor time, versions and features.
        classes: MAP@R of each test class in percent (mean over folds), a row per arm, search and
            length (in files only the length that validation prefers); the row `IMAGES` holds the
            number of images of each class.
        curves: validation score in percent (mean over folds), a row per arm, search, length and
            evaluation.
        trials: a row per arm, search and trial: validation score in percent and values. In files
            the best trial of a search has all digits, so that its training runs can be repeated
            exactly, and values of the others have six.
    """

    scores: pd.DataFrame
    classes: pd.DataFrame
    curves: pd.DataFrame
    trials: pd.DataFrame

    def write(self, folder: Path) -> None:
        """Writes each table as `<name>.csv.xz`."""
        write_tables(self._replace(trials=round_other_trials(self.trials))._asdict(), folder)

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Reads what `write` wrote.

        Raises:
            UserError: a file is damaged, or its rows cannot be results; see `check_tables`.
        """
        tables = read_tables(cls._fields, folder)
        check_tables(tables, folder)
        return cls(**tables)

    @classmethod
    def exist(cls, folder: Path) -> bool:
        """Returns whether a folder has results."""
        return (folder / f"scores{SUFFIX}").exists()

    def add_to(self, folder: Path) -> None:
        """Writes the tables to a folder, together with the other searches that it has.

        Class scores that nothing reads are left out.
        """
        results = self
        if Results.exist(folder):
            results = Results.read(folder).add(self)
        results.without_unread_classes().write(folder)

    def without_unread_classes(self) -> Results:
        """Returns the results with class scores of the lengths that validation prefers alone.

        Lengths within a thousandth of a point of the best stay, since scores in files are rounded.
        """
        validation = self.runs().validation
        best = validation.groupby(["arm", "search"]).transform("max")
        preferred = validation.index[validation > best - 0.001]
        keys = pd.MultiIndex.from_frame(self.classes[list(KEYS)])
        is_read = keys.isin(preferred) | (self.classes.arm == IMAGES)
        return self._replace(classes=self.classes[is_read].reset_index(drop=True))

    def add(self, other: Results) -> Results:
        """Returns the results of both; a search of `other` replaces the same search of the arm."""
        merged = {}
        for name in self._fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            names = list(KEYS[:2])
            replaced = mine.set_index(names).index.isin(theirs.set_index(names).index)
            merged[name] = pd.concat([mine[~replaced], theirs], ignore_index=True)
        return Results(**merged)

    def searches(self) -> set[tuple[str, int]]:
        """Returns the searches (arm, number) that have results."""
        pairs = self.scores[list(KEYS[:2])].drop_duplicates()
        return set(pairs.itertuples(index=False, name=None))

    @classmethod
    def find_searches(cls, folder: Path) -> set[tuple[str, int]]:
        """Returns the searches (arm, number) that have results in a folder."""
        return Results.read(folder).searches() if cls.exist(folder) else set()

    def images(self) -> pd.Series:
        """Returns the number of test images of each class."""
        return self.classes[self.classes.arm == IMAGES].iloc[0].drop(list(KEYS)).astype(int)

    def runs(self) -> pd.DataFrame:
        """Returns a row per training run, indexed by arm, search and epochs.

        Columns are means over folds; of `stages` and `best_step` medians.
        """
        means = ["validation", "untrained", *METRICS]
        runs = self.scores.groupby(list(KEYS))
        medians = runs[["stages", "best_step"]].median()
        return runs[means].mean().join(medians).join(runs.edges.first().fillna(""))

    def choose_lengths(self) -> pd.DataFrame:
        """Returns of each search the run with the length that validation prefers, as `runs`."""
        runs = self.runs()
        best = runs.groupby(["arm", "search"]).validation.idxmax()
        return runs.loc[best].reset_index("epochs")

    def class_scores(self) -> pd.DataFrame:
        """Returns the scores of the test classes, a row per arm and search.

        They are those of the length that each search chooses.
        """
        table = self.classes[self.classes.arm != IMAGES].set_index(list(KEYS))
        chosen = self.choose_lengths().set_index("epochs", append=True).index
        return table.loc[chosen].droplevel("epochs")


def round_other_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Returns trials with values of six digits, except those of the best trial of each search."""
    best = trials.groupby(["arm", "search"]).value.idxmax()
    is_other = ~trials.index.isin(best)
    rounded = trials.copy()
    values = trials.select_dtypes("number").columns.difference(["search", "number", "value"])
    for name in values:
        rounded.loc[is_other, name] = trials.loc[is_other, name].map(_round_to_six_digits)
    return rounded


def _round_to_six_digits(value: float) -> float:
    return float(f"{value:.6g}")
