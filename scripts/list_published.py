"""Published results matched with experiments: python scripts/list_published.py metrix_table3

Takes the id of an experiment, or `all`. Lists every cell with the published results that its report
compares it with, then the published results of the same tables without a cell, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import environment  # noqa: F401

from dml.core.errors import UserError
from dml.results.catalog import (
    CellMatch,
    experiment_ids,
    list_cells,
    load_experiment,
    match_cells,
)
from dml.results.published import unmatched_results


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 if every result and cell has a match or a reason, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", help="an id, or all")
    wanted = parser.parse_args(argv).experiment
    matches: list[CellMatch] = []
    tables: set[tuple[str | None, str]] = set()
    try:
        for id in experiment_ids() if wanted == "all" else [wanted]:
            cells, about = list_cells(id), load_experiment(id)
            own = list(match_cells(about, cells))
            print(f"{id}: {f'{len(own)} rows' if own else 'no table of the paper'}")
            for match in own:
                print(f"  {_format(match)}")
            matches += own
            tables |= {(about.source, table) for table in about.tables}
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    unexplained = sum(not match.results and match.reason is None for match in matches)
    lines = {one.line for match in matches for some in match.results.values() for one in some}
    counts: Counter[str] = Counter()
    for row, reason in unmatched_results(lines):
        if wanted == "all" or (row["source"], row["table"]) in tables:
            counts[f"{row['source']} {row['table']} {row['method']}: {_or_none(reason)}"] += 1
            unexplained += reason is None
    for text, count in counts.items():
        print(f"no cell: {count:3d} results of {text}")
    return 1 if unexplained else 0


def _format(match: CellMatch) -> str:
    key = match.key
    parts = [key.data, key.backbone, key.dim, key.evaluation, key.method, key.setting]
    results = [
        f"{metric} {one} ({one.table}, {one.origin})" for metric, (one, *_) in match.results.items()
    ]
    text = ", ".join(results) or f"not published: {_or_none(match.reason)}"
    return f"{' '.join(str(part) for part in parts if part)} -> {text}"


def _or_none(reason: str | None) -> str:
    return reason or "no reason given"


if __name__ == "__main__":
    sys.exit(main())
