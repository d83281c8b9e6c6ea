"""Bayesian search over a protocol's validation score, by any number of workers."""
