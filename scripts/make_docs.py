"""Writes the pages of docs/ that are made from configs, docstrings and the typed config.

python scripts/make_docs.py            writes them
python scripts/make_docs.py --check    names those that are out of date, with exit status 1
python scripts/make_docs.py --site     writes them, and the folder build/pages from which a site is
                                       built; `make docs` does both
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
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument(
        "--check", action="store_true", help="only name pages that are out of date"
    )
    actions.add_argument(
        "--site", action="store_true", help="also write build/pages: Markdown for a site"
    )
    options = parser.parse(arguments)
    from scripts.docs.pages import find_outdated, write_pages  # imported late: it loads torch

    if options.check:
        outdated = find_outdated(ROOT / "docs")
        for name in outdated:
            print(f"docs/{name} is out of date; run python scripts/make_docs.py", file=sys.stderr)
        return 1 if outdated else 0
    for name in write_pages(ROOT / "docs"):
        print(f"docs/{name}")
    if options.site:
        from scripts.docs.site import write_site

        write_site(ROOT, ROOT / "build")
        print("build/pages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
