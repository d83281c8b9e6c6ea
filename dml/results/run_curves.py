"""The picture of the learning curves of several runs."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from dml.core.errors import describe_failure
from dml.results.frame import GROUPS, Runs, common_names, option_columns


def draw_curves(runs: Runs, path: Path) -> list[Text]:
    """Draws the curves of runs, seeds joined; returns the line that names the picture."""
    from dml.results.figures import write_curves  # late: lists draw nothing
    from dml.runs.figures.drawing import check_picture

    first = runs.table.drop_duplicates("configuration")
    titles = _curve_titles(runs.select(first))
    groups = {}
    for title, configuration in zip(titles, first.configuration, strict=True):
        same = runs.table[runs.table.configuration == configuration]
        groups[title] = runs.select(same).by_row
    metric, _, classes = first.selected_by.iloc[0].partition(" on ")
    try:
        origin = f"curves {path.parent.name} {path.stem}"
        check_picture(path, "curves", origin=origin)
        drawn = write_curves(
            groups, metric, f"{common_names(runs)}, {classes} images", path, origin
        )
    except Exception as error:  # no picture is worth the table
        return [Text(f"note: the curves cannot be drawn: {describe_failure(error)}")]
    return [Text(f"curves      {path}")] if drawn else []


def _curve_titles(runs: Runs) -> list[str]:
    """Returns a title per configuration: its `name=`, or else names and options that differ."""
    columns = option_columns(runs)
    names = runs.table["name"]
    titles = []
    for n, (name, loss) in enumerate(zip(names, runs.table.loss, strict=True)):
        if name and sum(names == name) == 1:
            titles.append(name)
            continue
        texts = []
        for title, cells in columns.items():
            if cells[n]:
                texts.append(cells[n] if title in GROUPS else f"{title}={cells[n]}")
        titles.append(", ".join(texts) or loss)
    return titles
