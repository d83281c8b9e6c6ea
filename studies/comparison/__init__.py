"""Comparisons of losses and methods in which the search is a part of each arm."""
