"""Compares our results with the published ones: `python scripts/report.py --help`."""

import sys

import environment  # noqa: F401

from dml.cli.report_command import main

if __name__ == "__main__":
    sys.exit(main())
