"""Trains the arms of a declared study, and writes its page: docs/results/<name>.md

    python studies/run.py reality_check features.npz                 all arms; continues
    python studies/run.py reality_check features.npz --arms ms,pfml  some of them
    python studies/run.py reality_check                              only the page
    python studies/run.py fine_tuning data                           of images: their folder

The declaration, studies/<name>/declaration.yaml, is committed before the first training;
the page prints that commit.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.atomic_io import output_folder
from dml.core.errors import UserError
from dml.core.plain_text import print_plain

STUDIES, PAGES = Path(__file__).parent, Path("docs/results")


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    parser = Parser(__doc__)
    declared = [path.parent.name for path in STUDIES.glob("*/declaration.yaml")]
    parser.add_argument("study", choices=declared)
    parser.add_argument(
        "data", type=parse_path, nargs="?", help="file of features, folder of datasets"
    )
    parser.add_argument("--arms", type=lambda names: names.split(","))
    parser.add_argument("--outputs", type=parse_path, default=Path("outputs/studies"))
    parser.add_argument("--pages", type=parse_path, default=PAGES)
    parser.add_argument("--overwrite", action="store_true", help="replace any page of this name")
    options = parser.parse(argv)
    # Imported late: --help need not load torch.
    from studies.comparison.declaration import committed_at
    from studies.reality_check.declaration import read_declaration
    from studies.reality_check.page import check_page, write_page
    from studies.reality_check.trainings import Results, train_arm

    file = STUDIES / options.study / "declaration.yaml"
    study, tables = read_declaration(file), options.pages / options.study
    if options.pages != PAGES and not options.overwrite:
        check_page(options.pages, options.study, f"# {study.title}")
    arms = options.arms or list(study.arms)
    unknown = set(arms) - set(study.arms)
    if unknown:
        raise UserError(f"--arms: no {', '.join(unknown)}; the study has {', '.join(study.arms)}")
    if options.data:
        outputs = output_folder(options.outputs / options.study)
        commit = committed_at(file)
        for arm in arms:
            results = train_arm(study, arm, study.arms[arm], options.data, outputs / arm)
            results.scores["declared"] = commit
            results.add_to(tables)
    if not Results.exist(tables):
        raise UserError(f"{options.study}: no results in {tables}; give the data to train its arms")
    results = Results.read(tables)
    missing = {study.reference, *study.same} - set(results.scores.arm)
    if missing:
        names = ", ".join(sorted(missing))
        print_plain(f"tables      {tables}; a page needs results of {names} too")
    else:
        write_page(study, results, options.pages, options.study)
        print_plain(f"page        {options.pages / options.study}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
