"""Embeddings of a split, their scores and files."""
