"""The commands `train.py`, `evaluate.py`, `scripts/…` and the installed `dml-…`."""

from dml.cli.hydra_command import command
from dml.core.installation import CONFIGS

__all__ = ["CONFIGS", "command"]
