"""The published number that is nearest to a run, and in what the two differ."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from dml.core.installation import CONFIGS
from dml.core.metric_names import metric_label
from dml.results.frame import GROUPS, comparable, differing_options, format_option, join_some
from dml.results.published import VALIDATED, read_result, rows_of
from dml.results.tables import Cell
from dml.runs.folder.stored_run import StoredRun

METRICS = ("map_at_r", "recall_at_1", "precision_at_1")


def find_nearest(run: StoredRun, evaluation: str = "", repeats: int = 0) -> Cell | None:
    """Returns the published number of a run's data and method that differs in the fewest points.

    Args:
        run: a run.
        evaluation: of several models, `separated` or `concatenated`; empty for the run's own.
        repeats: of all runs of its configuration; 0 for those of the run.

    Returns:
        The number with the names of what differs, as a cell of a table whose hint has the values;
        None for an unfinished run or a stand-in, or if no paper prints one of this method on these
        data.
    """
    summary, config = run.summary, run.config
    if summary is None or config is None or summary.stand_in:
        return None
    ours = {"protocol": summary.protocol, "evaluation": evaluation or summary.evaluation}
    ours |= {"backbone": config.backbone, "dim": str(summary.embedding_size), "setting": ""}
    found = []
    named = run.content["data"].get("identified_by") == "name"  # not images of the user
    for place, metric in enumerate(dict.fromkeys((config.select_metric, *METRICS))):
        for row in rows_of("dataset", config.data, metric):
            if named and row["method"] == summary.result_id:
                result = read_result(row)
                differences = _differences(row, ours, config.selected_on)
                rank = (len(differences), place, *result.preference, result.line)
                found.append((rank, metric, result, differences))
    if not found:
        return None
    _, metric, result, differences = min(found, key=itemgetter(0))
    repeats = repeats or len({job.repeat for job in summary.jobs})
    if result.runs not in (None, repeats):
        differences["repeats"] = f"{result.runs} repeats instead of {repeats}"
    if options := _other_options(run):
        differences["options"] = join_some(options)
    names = f" ({', '.join(differences)})" if differences else ""
    others = f"with {'; '.join(differences.values())}" if differences else "in the same setting"
    label = metric_label(metric)
    text = f"{label} {result} ({result.place}), {others}"
    return Cell(f"{label} {result.text}{names}", "published", text)


def _differences(
    row: Mapping[str, str], ours: Mapping[str, str], selected_on: str
) -> dict[str, str]:
    """Returns the columns in which a published result differs; an empty one may be anything."""
    found = {
        name: f"{row[name]} instead of {own or 'the usual'}"
        for name, own in ours.items()
        if row[name] not in ("", own)
    }
    theirs = "validation" if row["protocol"] in VALIDATED else "test"
    if theirs != selected_on:
        found["selection"] = f"selection on {theirs} classes instead of {selected_on} classes"
    return found


def _other_options(run: StoredRun) -> list[str]:
    """Returns the options in which a run differs from the files that it chose."""
    from dml.results.catalog import identity_of  # late: most runs have no published number

    names: dict[str, Any] = {"experiment": run.config.experiment if run.config else ""}
    names |= {group: (run.content.get(group) or {}).get("name") for group in (*GROUPS, "search")}
    chosen = [(CONFIGS / group / f"{name}.yaml", name) for group, name in names.items()]
    words = (f"{path.parent.name}={name}" for path, name in chosen if path.exists())
    ours, planned = comparable(run.options), comparable(identity_of(*words))
    return [
        f"{name}={format_option(planned.get(name))} instead of {format_option(ours.get(name))}"
        for name in differing_options([ours, planned])
    ]
