"""A config becomes a finished run folder."""
