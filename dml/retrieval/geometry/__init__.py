"""Geometry of embeddings: the measures that the papers report besides retrieval.

Everything is computed in float64 on the embeddings as given (normalize them first where a paper's
measure is defined on the sphere) and in tiles, so that memory stays bounded.
"""

from dml.retrieval.geometry.coverage import covering_radius, greedy_k_center, proxy_alignment
from dml.retrieval.geometry.mixed_positives import positivity, predicted_positivity
from dml.retrieval.geometry.spread import alignment, inter_class_distance, uniformity, utilization

__all__ = [
    "alignment",
    "covering_radius",
    "greedy_k_center",
    "inter_class_distance",
    "positivity",
    "predicted_positivity",
    "proxy_alignment",
    "uniformity",
    "utilization",
]
