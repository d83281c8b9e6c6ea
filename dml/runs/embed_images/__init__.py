"""Embedding images into a file: a new one, or one to which they are appended."""
