"""Published results matched with experiments: python scripts/list_published.py metrix_table3

Takes the id of an experiment, or `all`. Lists every cell with the published results that its report
compares it with, then the published results of the same tables without a cell, with the reason.
"""

from __future__ import annotations

import sys
from collections import Counter

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.results.catalog import experiment_ids, list_cells, load_experiment, match_cells
from dml.results.published import LOSS_NAMES, unmatched_results


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 if every result and cell has a match or a reason, else 1."""
    parser = make_parser(__doc__)
    parser.add_argument("experiment", help="an id, or all")
    wanted = parser.parse_args(argv).experiment
    unexplained, lines = 0, set()
    tables: set[tuple[str | None, str]] = set()
    for id in experiment_ids() if wanted == "all" else [wanted]:
        cells, about = list_cells(id), load_experiment(id)
        matches = list(match_cells(about, cells))
        print(f"{id}: {f'{len(matches)} rows' if matches else 'no table of the paper'}")
        for _, key, results, reason in matches:
            name = LOSS_NAMES.get(key.method, key.method)
            parts = (key.data, key.backbone, key.dim, key.evaluation, name, key.setting)
            found = [f"{m} {one} ({one.table}, {one.origin})" for m, (one, *_) in results.items()]
            text = ", ".join(found) or f"not published: {_or_none(reason)}"
            print(f"  {' '.join(str(part) for part in parts if part)} -> {text}")
            lines |= {one.line for some in results.values() for one in some}
            unexplained += not results and reason is None
        tables |= {(about.source, table) for table in about.tables}
    counts: Counter[str] = Counter()
    for row, reason in unmatched_results(lines):
        if wanted == "all" or (row["source"], row["table"]) in tables:
            counts[f"{row['source']} {row['table']} {row['method']}: {_or_none(reason)}"] += 1
            unexplained += reason is None
    for text, count in counts.items():
        print(f"no cell: {count:3d} results of {text}")
    return 1 if unexplained else 0


def _or_none(reason: str | None) -> str:
    return reason or "no reason given"


if __name__ == "__main__":
    sys.exit(main())
