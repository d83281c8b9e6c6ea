"""Losses of the papers, in the calling convention of pytorch-metric-learning."""
