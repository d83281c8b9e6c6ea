"""Datasets as published, their splits, samplers, transforms and loaders."""
