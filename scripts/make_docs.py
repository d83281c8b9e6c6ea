"""Writes the pages of docs/ that are made from configs, docstrings and the typed config.

python scripts/make_docs.py            writes them; `make docs` does so, and builds the site
python scripts/make_docs.py --check    names those that are out of date, with exit status 1
"""

from __future__ import annotations

import sys

from clone import ROOT

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser


@report_errors
def main(arguments: list[str] | None = None) -> int:
    """Writes or checks the pages; returns the exit status."""
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true", help="only name pages that are out of date")
    options = parser.parse(arguments)
    from scripts.docs.pages import find_outdated, write_pages  # imported late: it loads torch

    if options.check:
        outdated = find_outdated(ROOT / "docs")
        for name in outdated:
            print(f"docs/{name} is out of date; run python scripts/make_docs.py", file=sys.stderr)
        return 1 if outdated else 0
    for name in write_pages(ROOT / "docs"):
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
