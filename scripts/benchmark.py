"""Benchmarks of speed and memory: `python scripts/benchmark.py losses [options]`.

A suite is a module of `scripts/benchmarks/` with a function `main(argv)`; names with a leading
underscore are helpers.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from environment import ROOT

from dml.cli.error_lines import report_errors
from dml.core.errors import nearest


@report_errors
def main(arguments: list[str]) -> int:
    """Runs the suite named by the first argument; returns the exit status."""
    folder = str(ROOT / "scripts" / "benchmarks")
    suites = [m.name for m in pkgutil.iter_modules([folder]) if m.name[0] != "_"]
    usage = f"usage: python scripts/benchmark.py {{{','.join(suites)}}} [options]"
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return 0 if arguments else 2
    suite, *options = arguments
    if suite not in suites:
        print(f"unknown suite '{suite}'{nearest(suite, suites)}\n{usage}", file=sys.stderr)
        return 2
    importlib.import_module(f"scripts.benchmarks.{suite}").main(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
