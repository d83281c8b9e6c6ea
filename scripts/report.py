"""Compares our results with the published ones: `python scripts/report.py --help`."""

import sys

from dml.cli.report_command import main

if __name__ == "__main__":
    sys.exit(main())
