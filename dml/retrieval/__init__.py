"""Embeddings and their files, exact nearest neighbors, retrieval metrics, geometry, search."""

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
