"""Final scores of jobs and runs as a flat dictionary."""

from __future__ import annotations

from typing import Any


def flatten_scores(result: dict[str, Any], section: str) -> dict[str, float]:
    """Returns name → number: scores (`test/map_at_r`), intervals (`test_ci95/…`), time, memory, ….

    Args:
        result: result of a job or summary of a run.
        section: prefix of the test scores.
    """
    sections = {name: result.get(name) for name in ("validation", "untrained")}
    sections[section] = result.get("metrics")
    sections["concatenated"] = (result.get("concatenated") or {}).get("metrics")
    scores: dict[str, float] = {}
    for prefix, metrics in sections.items():
        for name, value in (metrics or {}).items():
            if not isinstance(value, dict):
                scores[f"{prefix}/{name}"] = value
                continue
            scores[f"{prefix}/{name}"] = value["mean"]
            if value["ci95"] is not None:
                scores[f"{prefix}_ci95/{name}"] = value["ci95"]
    return scores | _plain_numbers(result)


def _plain_numbers(result: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers that are not scores."""
    omitted = ("repeat", "fold", "seed")
    return {
        name: value
        for name, value in result.items()
        if isinstance(value, int | float) and name not in omitted and not isinstance(value, bool)
    }
