"""Comparison with the public code of the papers' authors, on the same inputs.

comparisons.yaml   the repositories, their revisions, and what is compared
inputs             the inputs of both sides
ours               what this framework computes from them
theirs/            what the authors' code computes: scripts, run apart with its packages
exchange           what both sides share
"""
