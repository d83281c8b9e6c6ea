"""Exact neighbours, retrieval metrics and the geometry of embeddings."""
