"""Prints the coverage of the intervals of a declared comparison, in simulated ones.

    python studies/simulate.py heads_emoji                      1,000 comparisons, a minute
    python studies/simulate.py heads_emoji --comparisons 100

First as before a comparison of heads, from the tables of an earlier study that git has; then with
the noise that its own tables show, or those of a similar comparison while arms have a single
search; with two searches of each arm, also with arms that vary differently: see
`studies/comparison/simulation.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, whole_number

if TYPE_CHECKING:
    import numpy as np

    from studies.comparison.declaration import Declaration
    from studies.comparison.simulation import Source

STUDIES = Path(__file__).parent
PAGES = STUDIES.parent / "docs" / "results"
SIMILAR = "heads_emoji"  # whose noise is taken where nothing else is known
MARGINS = (0.25, 0.5, 0.75)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = Parser(__doc__)
    declared = sorted(path.parent.name for path in STUDIES.glob("*/declaration.yaml"))
    parser.add_argument("study", choices=declared)
    parser.add_argument(
        "--comparisons", type=whole_number(2), default=1000, help="simulated (default: 1000)"
    )
    options = parser.parse(argv)
    # Imported late: pandas, scipy.
    from studies.comparison.declaration import read_declaration
    from studies.comparison.results import Results
    from studies.comparison.simulation import measured_source, read_first_edition, vary_noise
    from studies.comparison.statistics import LEAST

    study = read_declaration(STUDIES / options.study / "declaration.yaml")
    if study.features:
        print("with arms and searches of the first edition, before the comparison:")
        _print_coverage(study, *read_first_edition(), options.comparisons)
    name = options.study
    if not _have_noise(study, PAGES / name):
        name = study.compared_with.study if study.compared_with else SIMILAR
    source, images = measured_source(Results.read(PAGES / name))
    print(f"with the noise of the searches in docs/results/{name}:")
    _print_coverage(study, source, images, options.comparisons)
    if study.claimed_searches < LEAST:
        unequal = vary_noise(source, Results.read(PAGES / SIMILAR))
        print(f"with this noise, and arms that vary as differently as in docs/results/{SIMILAR}:")
        _print_coverage(study, unequal, images, options.comparisons)
    return 0


def _have_noise(study: Declaration, tables: Path) -> bool:
    """Returns whether tables have two searches of every arm."""
    from studies.comparison.results import Results

    if not Results.exist(tables):
        return False
    arms = [arm for arm, _ in Results.read(tables).searches()]
    return all(arms.count(arm) > 1 for arm in study.arms)


def _print_coverage(study: Declaration, source: Source, images: np.ndarray, count: int) -> None:
    from studies.comparison.simulation import simulate

    coverage = simulate(study, source, images, MARGINS, count)
    print(f"  {coverage.noise:.2f} points: standard deviation of a search, pooled over the arms")
    print(f"  {coverage.search:.1%} of intervals of a score contain a new search")
    print(f"  {coverage.pair:.1%} of intervals of one difference contain the expected one")
    print(f"  {coverage.claims:.1%} of comparisons: so do the intervals of all claims together")
    print(f"  {coverage.references:.1%} of comparisons: so do all differences from the reference")
    print(f"  {coverage.different:.1%} of comparisons: a claim about two equal arms excludes 0")
    for margin, share in coverage.equivalent.items():
        print(f"  {share:.1%} of comparisons: two equal arms lie within ±{margin:g} points")
    equal = simulate(study, source, images, MARGINS, count, are_equal=True)
    print(f"  {1 - equal.ranks:.1%} of comparisons of equal arms: the ranks tell some apart")


if __name__ == "__main__":
    sys.exit(main())
