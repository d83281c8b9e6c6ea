"""The versions and the commit with which a run was started and continued."""

from __future__ import annotations

from typing import Any

from dml.core.atomic_io import read_json, write_json
from dml.core.installation import git_revision, versions
from dml.runs.folder.run_folder import RunFolder

Environment = dict[str, Any]


def record_environment(folder: RunFolder) -> str:
    """Adds versions and commit of this process to those of earlier starts of a run.

    Returns:
        What has changed since the last start, such as `torch 2.10.0 (before: 2.9.1)`; empty if
        nothing has.

    Raises:
        UserError: the file of the run is damaged.
    """
    known = _read(folder)
    now = {"versions": versions(), "git_revision": git_revision()}
    if known and known[-1] == now:
        return ""
    write_json(folder.environment, {"starts": [*known, now]})
    return _describe_change(known[-1], now) if known else ""


def earlier_environments(folder: RunFolder) -> list[Environment]:
    """Returns versions and commit of the starts of a run before the last change; often none."""
    return _read(folder)[:-1]


def _read(folder: RunFolder) -> list[Environment]:
    stored = read_json(folder.environment) or {}
    return list(stored.get("starts", []))


def _describe_change(before: Environment, now: Environment) -> str:
    earlier = {**before["versions"], "commit": before["git_revision"]}
    later = {**now["versions"], "commit": now["git_revision"]}
    parts = []
    for name in [*later, *sorted(earlier.keys() - later.keys())]:
        if later.get(name) != earlier.get(name):
            parts.append(f"{name} {later.get(name)} (before: {earlier.get(name)})")
    return ", ".join(parts)
