"""Scores: embeddings of a split, their metrics and files."""
