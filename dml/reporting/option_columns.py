"""Options that tell runs apart, as columns of a list."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dml.reporting.run_list import GROUPS, ListedRun

# Follow from the names of the groups, or are columns of their own.
NOT_COMPARED = ("seed", *(f"{group}.name" for group in GROUPS))
ENDS_NOT_COMPARED = ("._target_", ".result_id")
# How often a run was repeated and what was measured beside the scores does not make it another.
NOT_IN_GROUPS = ("seed", "protocol.repeats", "evaluation.")


def differing_options(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the sorted names of the options that are not equal in all mappings."""
    names = sorted(set().union(*options)) if options else []
    return [
        name
        for name in names
        if any(one.get(name, "") != options[0].get(name, "") for one in options)
    ]


def format_option(value: Any) -> str:
    """Returns an option's value as it is typed on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(format_option, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    for name, short in shorten(_find_differing(readable)).items():
        columns[short] = [_cell(run.options, name) for run in runs]
    return columns


def common_names(runs: Sequence[ListedRun]) -> str:
    """Returns the names of `GROUPS` that all runs share: `cub, mlrc, plain, bn_inception`."""
    readable = [run for run in runs if run.labels]
    return ", ".join(
        _label(readable[0], group)
        for group in GROUPS
        if readable and len({run.labels[group] for run in readable}) == 1
    )


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


def shorten(names: Sequence[str]) -> dict[str, str]:
    """Returns dotted name → its last part, or as many parts as make it unique; in order."""
    last = Counter(name.rpartition(".")[2] for name in names)
    return {name: leaf if last[leaf := name.rpartition(".")[2]] == 1 else name for name in names}


def _cell(options: Mapping[str, Any], name: str) -> str:
    return format_option(options[name]) if name in options else ""


def group_key(run: ListedRun) -> tuple[tuple[str, str], ...]:
    """Returns a key that runs share if they differ only in seed and repeats."""
    return tuple(
        (name, format_option(value))
        for name, value in run.options.items()
        if not name.startswith(NOT_IN_GROUPS)
    )
