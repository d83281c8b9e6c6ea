"""Plants mistakes in a copy of this repository, and tells which tests find them: make plant

    python scripts/plant_mistakes.py                     all
    python scripts/plant_mistakes.py --room losses       those of scripts/mistakes/losses.yaml
    python scripts/plant_mistakes.py --only NAME …       some of them
    python scripts/plant_mistakes.py --list              what there is

The tests that are named for the mistakes must pass in an unchanged copy. Then each mistake gets a
copy, in which its tests run, two mistakes at once. A mistake is found if a test fails by an
assertion or an exception; not if tests cannot be collected, imported or set up. Prints a table, and
ends with status 1 if a mistake is not found, or its code is not in the source exactly once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

import clone

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, whole_number
from dml.core.signals import raise_on_signals
from scripts.mistakes.catalog import CATALOG, Mistake, choose, load_mistakes
from scripts.mistakes.copies import copy_repository
from scripts.mistakes.planting import check_mistakes
from scripts.mistakes.trials import Laboratory, Trial


@report_errors
def main(
    words: Sequence[str] | None = None, root: Path = clone.ROOT, catalog: Path = CATALOG
) -> int:
    """Returns the exit status: 0 if all mistakes are found.

    Args:
        words: of the command; None for those in `sys.argv`.
        root: of the clone.
        catalog: folder of the files with the mistakes.
    """
    parser = Parser(__doc__)
    parser.add_argument("--room", help="name of a file of scripts/mistakes, without .yaml")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of a mistake")
    parser.add_argument("--list", action="store_true", help="names and what is wrong; runs nothing")
    parser.add_argument("--processes", type=whole_number(1), default=2, help="mistakes at once")
    parser.add_argument(
        "--seconds", type=whole_number(1), default=90, help="after which tests are stopped"
    )
    options = parser.parse(words)
    mistakes = choose(load_mistakes(catalog), options.room or None, options.only)
    check_mistakes(mistakes, root)
    if options.list:
        _print_list(mistakes)
        return 0
    with raise_on_signals(), TemporaryDirectory(prefix="mistakes-") as name:
        copy = copy_repository(root, Path(name) / "unchanged")
        laboratory = Laboratory(copy, Path(name), options.seconds)
        trials = _try_all(mistakes, laboratory, options.processes)
    return _print_sums(trials)


def _try_all(mistakes: Sequence[Mistake], laboratory: Laboratory, processes: int) -> list[Trial]:
    """Tests the unchanged copy, then tries all mistakes; prints a row for each at its end."""
    tests = sorted({test for mistake in mistakes for test in mistake.tests})
    trials = []
    with ThreadPoolExecutor(processes) as executor:
        try:
            print(f"unchanged: {len(tests)} test files …", flush=True)
            executor.submit(laboratory.test_unchanged, tests, processes).result()
            jobs = [executor.submit(laboratory.try_mistake, mistake) for mistake in mistakes]
            print("| mistake | found by | seconds |\n|---|---|---|", flush=True)
            for job in as_completed(jobs):
                trials.append(job.result())
                _print_row(trials[-1])
        except BaseException:
            laboratory.stop()
            executor.shutdown(cancel_futures=True)
            raise
    return trials


def _print_row(trial: Trial) -> None:
    finder = trial.test or f"**not found**: {trial.problem}"
    print(f"| {trial.mistake.name} | {finder} | {trial.seconds:.0f} |", flush=True)


def _print_sums(trials: Sequence[Trial]) -> int:
    missed = [trial for trial in trials if not trial.test]
    detected = len(trials) - len(missed)
    nearest = sum(trial.is_nearest for trial in trials)
    small = sum(trial.mistake.small for trial in trials)
    print(f"\n{detected} of {len(trials)} found, {nearest} by the nearest test file; {small} small")
    for trial in missed:
        print(f"not found: {trial.mistake.name}: {trial.mistake.wrong}; {trial.problem}")
    return int(len(missed) > 0)


def _print_list(mistakes: Sequence[Mistake]) -> None:
    for mistake in mistakes:
        print(f"{mistake.room}: {mistake.name}: {mistake.wrong} ({', '.join(mistake.tests)})")


if __name__ == "__main__":
    sys.exit(main())
