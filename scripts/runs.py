"""Lists run folders: `python scripts/runs.py --help`."""

import sys

from dml.cli.runs_command import main

if __name__ == "__main__":
    sys.exit(main())
