"""The parts of `dml check`: what is tried on a machine, and what is said of it."""
