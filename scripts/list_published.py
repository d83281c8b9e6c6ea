"""Which printed number each run stands beside: python scripts/list_published.py metrix_table3

Takes a name of an experiment, or `all`. Lists every cell with the printed numbers that its report
compares it with, then the printed rows of the same paper that no cell runs, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from dml.core.errors import UserError
from dml.reporting.catalog import about, cells, names
from dml.reporting.published_matches import Pair, pairs, without_cell
from dml.reporting.report import source_of


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 every row and cell is accounted for, 1 not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", help="an id, or all")
    wanted = parser.parse_args(argv).experiment
    found: list[Pair] = []
    try:
        for name in names() if wanted == "all" else [wanted]:
            own = [*pairs(name, cells(name), source_of(about(name)))]
            print(f"{name}: {'no table of the paper' if not own else f'{len(own)} rows'}")
            for pair in own:
                print(f"  {_line(pair)}")
            found += own
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    tables = {table for pair in found for table in _tables(pair.experiment)}
    unknown = sum(not pair.numbers and pair.reason is None for pair in found)
    left: Counter[str] = Counter()
    for row, reason in without_cell(found):
        if wanted == "all" or (row["source"], row["table"]) in tables:
            named = f"{row['source']} {row['table']} {row['method']}"
            left[f"{named}: {reason or 'no reason'}"] += 1
            unknown += reason is None
    for what, count in left.items():
        print(f"no cell: {count:3d} numbers of {what}")
    return 1 if unknown else 0


def _tables(experiment: str) -> list[tuple[str | None, str]]:
    source = source_of(about(experiment))
    return [(source.source, table) for table in source.tables]


def _line(pair: Pair) -> str:
    facts = pair.facts
    parts = [facts.data, facts.backbone, facts.dim, facts.evaluation, facts.method, facts.setting]
    numbers = [
        f"{metric} {one} ({one.table}, {one.origin})" for metric, (one, *_) in pair.numbers.items()
    ]
    told = ", ".join(numbers) or f"not printed: {pair.reason or 'no reason'}"
    return f"{' '.join(str(part) for part in parts if part)} -> {told}"


if __name__ == "__main__":
    sys.exit(main())
