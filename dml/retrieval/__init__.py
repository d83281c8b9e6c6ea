"""Embeddings and their files, exact nearest neighbors, retrieval metrics, geometry, search."""

from dml.retrieval.exact_search import Neighbors, nearest_neighbors
from dml.retrieval.geometry import (
    alignment,
    cluster_agreement,
    covering_radius,
    greedy_k_center,
    inter_class_distance,
    match_error_rates,
    positivity,
    predicted_positivity,
    proxy_alignment,
    uniformity,
    utilization,
)
from dml.retrieval.metrics import concatenate, mean_average_precision, retrieval_metrics

__all__ = [
    "Neighbors",
    "alignment",
    "cluster_agreement",
    "concatenate",
    "covering_radius",
    "greedy_k_center",
    "inter_class_distance",
    "match_error_rates",
    "mean_average_precision",
    "nearest_neighbors",
    "positivity",
    "predicted_positivity",
    "proxy_alignment",
    "retrieval_metrics",
    "uniformity",
    "utilization",
]
