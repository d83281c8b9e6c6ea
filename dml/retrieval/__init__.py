"""Embeddings and their files, exact nearest neighbors, retrieval metrics, geometry, search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dml.retrieval.classification import class_mean_accuracy, neighbor_accuracy
    from dml.retrieval.coverage import covering_radius, greedy_k_center
    from dml.retrieval.exact.search import Neighbors, nearest_neighbors
    from dml.retrieval.geometry import (
        alignment,
        cluster_agreement,
        inter_class_distance,
        proxy_alignment,
        uniformity,
        utilization,
    )
    from dml.retrieval.metrics import concatenate, mean_average_precision, retrieval_metrics
    from dml.retrieval.mixing import positivity, predicted_positivity
    from dml.retrieval.verification import (
        MatchCurve,
        MatchErrors,
        match_error_curve,
        match_error_rates,
        match_errors_at,
        match_thresholds,
    )

__all__ = [
    "MatchCurve",
    "MatchErrors",
    "Neighbors",
    "alignment",
    "class_mean_accuracy",
    "cluster_agreement",
    "concatenate",
    "covering_radius",
    "greedy_k_center",
    "inter_class_distance",
    "match_error_curve",
    "match_error_rates",
    "match_errors_at",
    "match_thresholds",
    "mean_average_precision",
    "nearest_neighbors",
    "neighbor_accuracy",
    "positivity",
    "predicted_positivity",
    "proxy_alignment",
    "retrieval_metrics",
    "uniformity",
    "utilization",
]

MODULES = {
    "MatchCurve": "dml.retrieval.verification",
    "MatchErrors": "dml.retrieval.verification",
    "Neighbors": "dml.retrieval.exact.search",
    "alignment": "dml.retrieval.geometry",
    "class_mean_accuracy": "dml.retrieval.classification",
    "cluster_agreement": "dml.retrieval.geometry",
    "concatenate": "dml.retrieval.metrics",
    "covering_radius": "dml.retrieval.coverage",
    "greedy_k_center": "dml.retrieval.coverage",
    "inter_class_distance": "dml.retrieval.geometry",
    "match_error_curve": "dml.retrieval.verification",
    "match_error_rates": "dml.retrieval.verification",
    "match_errors_at": "dml.retrieval.verification",
    "match_thresholds": "dml.retrieval.verification",
    "mean_average_precision": "dml.retrieval.metrics",
    "nearest_neighbors": "dml.retrieval.exact.search",
    "neighbor_accuracy": "dml.retrieval.classification",
    "positivity": "dml.retrieval.mixing",
    "predicted_positivity": "dml.retrieval.mixing",
    "proxy_alignment": "dml.retrieval.geometry",
    "retrieval_metrics": "dml.retrieval.metrics",
    "uniformity": "dml.retrieval.geometry",
    "utilization": "dml.retrieval.geometry",
}


def __getattr__(name: str) -> Any:
    # Imported late: a search in a file needs no torch.
    if name in MODULES:
        from importlib import import_module

        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module 'dml.retrieval' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
