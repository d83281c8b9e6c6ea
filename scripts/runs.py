"""Lists run folders: `python scripts/runs.py --help`."""

import sys

import environment  # noqa: F401

from dml.cli.runs_command import main

if __name__ == "__main__":
    sys.exit(main())
