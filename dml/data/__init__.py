"""Datasets as published, protocols, samplers, transforms and loaders."""
