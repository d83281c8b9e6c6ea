"""Options that tell runs apart, as columns of a list."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dml.results.option_texts import differing_options, format_option, short_names
from dml.results.run_list import GROUPS, ListedRun

# Follow from the names of the groups, or are columns of their own.
NOT_COMPARED = ("seed", *(f"{group}.name" for group in GROUPS))
LABELS = (*GROUPS, "name", "note")  # what these words mean in a list
ENDS_NOT_COMPARED = ("._target_", ".result_id")
# How often a run was repeated and what was measured beside the scores does not make it another.
NOT_IN_GROUPS = ("seed", "protocol.repeats", "evaluation.")


def option_columns(runs: Sequence[ListedRun]) -> dict[str, list[str]]:
    """Returns short name → a cell per run, for names and options in which the runs differ.

    Names of data, protocol, loss, method and backbone come first. Other options are compared only
    between runs in which all names agree: two losses differ in options by their nature.
    """
    readable = [run for run in runs if run.labels]
    columns = {}
    for group in GROUPS:
        if len({run.labels[group] for run in readable}) > 1:
            columns[group] = [_label(run, group) for run in runs]
    for name, short in short_names(_find_differing(readable), LABELS).items():
        columns[short] = [_cell(run.options, name) for run in runs]
    return columns


def common_names(runs: Sequence[ListedRun]) -> str:
    """Returns the names of `GROUPS` that all runs share: `cub, mlrc, plain, bn_inception`.

    A name that all were given with `name=` comes first, in quotation marks.
    """
    readable = [run for run in runs if run.labels]
    given = {given_name(run) for run in readable}
    named = [f'"{name}"' for name in given if name and len(given) == 1]
    shared = [
        _label(readable[0], group)
        for group in GROUPS
        if readable and len({run.labels[group] for run in readable}) == 1
    ]
    return ", ".join([*named, *shared])


def given_name(run: ListedRun) -> str:
    """Returns what was given with `name=`, in one line; empty without it."""
    return " ".join(run.labels.get("name", "").split())


def _label(run: ListedRun, group: str) -> str:
    """Returns the name of a run's data, loss …; stand-in data are marked wherever scores are."""
    stand_in = group == "data" and run.options.get("data.stand_in")
    return run.labels.get(group, "") + (" (stand-in)" if stand_in else "")


def _find_differing(runs: Sequence[ListedRun]) -> list[str]:
    """Returns the options that differ between runs of equal names, the most frequent ones first."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        alike[tuple(run.labels[group] for group in GROUPS)].append(run.options)
    found: Counter[str] = Counter()
    for options in alike.values():
        for name in differing_options(options):
            if name not in NOT_COMPARED and not name.endswith(ENDS_NOT_COMPARED):
                found[name] += len(options)
    return [name for name, _ in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))]


def _cell(options: Mapping[str, Any], name: str) -> str:
    return format_option(options[name]) if name in options else ""


def group_key(run: ListedRun) -> tuple[tuple[str, str], ...]:
    """Returns a key that runs share if they differ only in seed and repeats."""
    return tuple(
        (name, format_option(value))
        for name, value in run.options.items()
        if not name.startswith(NOT_IN_GROUPS)
    )
