"""Declarations, trainings, statistics and pages of studies; the reality check's is the first."""
