"""Exact neighbors, retrieval metrics and the geometry of embeddings."""

from dml.retrieval.metrics import concatenate, retrieval_metrics
from dml.retrieval.neighbors import Neighbors, nearest_neighbors

__all__ = ["Neighbors", "concatenate", "nearest_neighbors", "retrieval_metrics"]
