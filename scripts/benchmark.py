"""Benchmarks of speed and memory: `python scripts/benchmark.py losses [options]`.

A suite is a module of `scripts/benchmarks/` with a function `main(argv)`; names with a leading
underscore are helpers.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

from clone import ROOT

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Runs the suite named by the first argument; returns the exit status."""
    modules = pkgutil.iter_modules([str(ROOT / "scripts" / "benchmarks")])
    parser = Parser(__doc__)
    parser.add_argument("suite", choices=[one.name for one in modules if one.name[0] != "_"])
    parser.add_argument("options", nargs=argparse.REMAINDER, help="of the suite, or --help")
    given = parser.parse_args(argv)
    importlib.import_module(f"scripts.benchmarks.{given.suite}").main(given.options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
