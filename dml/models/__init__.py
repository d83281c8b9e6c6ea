"""Backbones and the embedder that turns their features into embeddings."""
