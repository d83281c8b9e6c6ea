"""Rows of tables that a single command runs."""
