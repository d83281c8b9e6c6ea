"""Results of jobs and summaries of runs as flat names with one number each."""

from __future__ import annotations

from typing import Any


def final_scores(found: dict[str, Any], section: str) -> dict[str, float]:
    """`test/map_at_r` and the like, half-widths as `test_ci95/…`, and time, memory, best epoch.

    Args:
        found: a job's result or a run's summary.
        section: what its test scores are called.
    """
    sections = {name: found.get(name) for name in ("validation", "untrained")}
    sections[section] = found.get("metrics")
    sections["concatenated"] = (found.get("concatenated") or {}).get("metrics")
    scores: dict[str, float] = {}
    for prefix, metrics in sections.items():
        for name, value in (metrics or {}).items():
            if not isinstance(value, dict):
                scores[f"{prefix}/{name}"] = value
                continue
            scores[f"{prefix}/{name}"] = value["mean"]
            if value["ci95"] is not None:
                scores[f"{prefix}_ci95/{name}"] = value["ci95"]
    return scores | _plain(found)


def _plain(found: dict[str, Any]) -> dict[str, float]:
    """The numbers beside the scores."""
    left_out = ("repeat", "fold", "seed")
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) and name not in left_out and not isinstance(value, bool)
    }
