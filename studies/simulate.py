"""Prints the coverage of the intervals of a declared comparison, in made comparisons.

    python studies/simulate.py heads_emoji                      1,000 comparisons, two minutes
    python studies/simulate.py heads_emoji --comparisons 100

Arms and searches are drawn from the tables of a finished study, which git has: see
`studies/comparison/simulation.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, whole_number

STUDIES = Path(__file__).parent
MARGINS = (0.25, 0.5, 0.75)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = Parser(__doc__)
    declared = sorted(path.parent.name for path in STUDIES.glob("heads_*/declaration.yaml"))
    parser.add_argument("study", choices=declared)
    parser.add_argument("--comparisons", type=whole_number(2), default=1000)
    options = parser.parse(argv)
    from studies.comparison.declaration import read_declaration  # imported late: pandas, scipy
    from studies.comparison.simulation import read_first_edition, simulate

    study = read_declaration(STUDIES / options.study / "declaration.yaml")
    source, images = read_first_edition()
    coverage = simulate(study, source, images, MARGINS, options.comparisons)
    print(f"{coverage.search:.1%} of intervals of a score contain a new search")
    print(f"{coverage.pair:.1%} of intervals of one difference contain the expected one")
    print(f"{coverage.claims:.1%} of comparisons: so do the intervals of all claims together")
    print(f"{coverage.references:.1%} of comparisons: so do all differences from the reference")
    print(f"{coverage.different:.1%} of comparisons: a claim about two equal arms excludes 0")
    for margin, share in coverage.equivalent.items():
        print(f"{share:.1%} of comparisons: two equal arms lie within ±{margin:g} points")
    equal = simulate(study, source, images, MARGINS, options.comparisons, are_equal=True)
    print(f"{1 - equal.ranks:.1%} of comparisons of equal arms: the ranks tell some apart")
    return 0


if __name__ == "__main__":
    sys.exit(main())
