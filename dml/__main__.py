"""The program `dml` without its script: `python -m dml`."""

import sys
from pathlib import Path

if not sys.flags.safe_path:
    # In place of the current folder, whose files could be imported instead of packages.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from dml.cli.entry_point import run

run()
