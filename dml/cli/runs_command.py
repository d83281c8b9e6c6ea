"""Command that lists, compares and removes runs: `dml runs`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dml.cli.parser import Parser, parse_folder, rarely_collect_garbage, refuse_outputs
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.installation import shell_command
from dml.core.option_values import EMBEDDING_FILES
from dml.core.plain_text import escape_json, print_plain
from dml.core.text_columns import plain_text_columns

if TYPE_CHECKING:  # otherwise imported late: --help need not load it
    from dml.core.plain_console import PlainConsole
    from dml.results.frame import Runs
    from dml.runs.folder.stored_run import StoredRun

# Files that a run may have written before its first evaluation, and folders of trackers.
OF_EMPTY_RUNS = {
    "config.yaml", "command.txt", "dataset.json", "run_id", "train.log", "history.csv",
    "figures_state.txt", "environment.json",
}  # fmt: skip
TRACKERS = ("tensorboard", "wandb")
WIDE = 10_000  # columns of an output that is no terminal
PARTIAL = re.compile(r"\..+\.[0-9a-f]{8}\.partial")  # of `dml.core.atomic_io.replace_file`
ACTIONS = ("list", "best", "compare", "rm", "clean")
CONDITIONS = ("list", "best", "clean")  # actions that take conditions, not runs
DESCRIPTION = """\
Lists the runs below outputs/, the newest first.

  {runs}                         all runs
  {runs} loss=ms,mf* seed=0      runs that meet all conditions
  {runs} state=stopped lr=0.001  also by state and any option
  {runs} best data=cub           joins seeds; best first
  {runs} compare 1a2b 5e6f       options, scores, curves, test, each query
  {runs} compare 1a2b 5e6f 9c0d  of more than two, tests of all pairs
  {runs} compare a.npz b.npz     each query of two files of embeddings
  {runs} rm 1a2b                 removes run folders; asks first
  {runs} clean                   removes unused files; asks first

A run is given by its id, the end of its folder's name (the first characters
suffice if no other id begins with them), by its name=, or by its folder.
States: finished, running, searching, stopped (the same command continues it, as
does {train} resume=<folder>), failed, empty, damaged.
"""


class Removal(NamedTuple):
    """A file or folder to remove, its run folder, the reason, and its bytes."""

    path: Path
    folder: Path
    reason: str
    size: int


def parser() -> Parser:
    """Returns the parser of the command."""
    text = DESCRIPTION.format(runs=shell_command("runs"), train=shell_command("train"))
    parser = Parser(text, "runs")
    add = parser.add_argument
    add("words", nargs="*", metavar="word", help="best | compare | rm | clean, conditions, ids")
    add(
        "--runs",
        type=parse_folder,
        default=Path("outputs"),
        help="folder of runs (default: outputs)",
    )
    add("--json", action="store_true", help="print JSON: all scores, options and paths")
    add("--yes", action="store_true", help="rm and clean: do not ask")
    add(
        "--metrics",
        type=_split_names,
        default=[],
        metavar="NAMES",
        help="compare: also these scores of each query, such as recall_at_10,mrr_at_r",
    )
    add("--no-queries", action="store_true", help="compare: no image is embedded or ranked")
    return parser


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    command = parser()
    options = command.parse(words)
    refuse_outputs(options.words)
    action, words = split_action(options.words)
    if action in CONDITIONS:
        command.refuse_without_dashes([word for word in words if "=" not in word])
    check_words(action, words, options.json)
    _check_options(action, options)
    rarely_collect_garbage()
    return _run(action, words, options)


@plain_text_columns()
def _run(action: str, words: list[str], options: Namespace) -> int:
    """Carries out an action on the runs that its words name."""
    from dml.results.frame import join_runs, one_per_run
    from dml.results.run_selection import find_run, select_runs

    all_rows = _load(action, words, options.runs)
    runs = all_rows.select(one_per_run(all_rows.table))
    if action == "compare":
        _compare(words, runs, all_rows, options)
        return 0
    if action == "rm":
        named = join_runs([find_run(word, runs) for word in words])
        of_folders = {run.folder.resolve(): run for run in named.by_row}  # each once
        return _remove(plan_removal(of_folders.values(), whole=True), options.yes)
    chosen = select_runs(runs, words)
    if action == "clean":
        return _remove(plan_removal(chosen.by_row, whole=False), options.yes)
    if action == "best":
        chosen, texts = _rank(chosen, all_rows)
    else:
        texts = _list(chosen)
    if options.json:
        _print_json(chosen)
    elif texts:
        _print_texts(texts)
    else:
        print_plain(_describe_absence(len(runs.table), words, options.runs))
    return 0


def _load(action: str, words: Sequence[str], root: Path) -> Runs:
    """Returns all runs below a folder; there need be none where each word is a folder of a run."""
    from dml.results.frame import load_runs, make_runs
    from dml.runs.folder.stored_run import is_run

    named = action in ("compare", "rm")
    for word in words:
        named = named and (is_run(Path(word)) or _is_file(word))
    return make_runs([]) if named and not root.is_dir() else load_runs(root)


def _describe_absence(number: int, words: Sequence[str], folder: Path) -> str:
    """Returns why no run of a number of runs is shown."""
    if number == 0:
        return f"no runs in {folder}; {shell_command('train')} creates one"
    conditions = " ".join(words) or "state=finished"
    return f"none of {number} runs meets {conditions}"


def split_action(words: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the action that the words begin with (default: list), and the other words."""
    if words and words[0] in ACTIONS:
        return words[0], list(words[1:])
    return "list", list(words)


def check_words(action: str, words: Sequence[str], as_json: bool) -> None:
    """Raises ConfigError for words that an action does not take."""
    if action in CONDITIONS:
        for word in words:
            name, is_condition, _ = word.partition("=")
            if not (name and is_condition):
                if word in ACTIONS:
                    usage = f"{shell_command('runs')} {word} <conditions>"
                    raise ConfigError([f"{word}: an action stands before the conditions: {usage}"])
                hint = nearest(word, ACTIONS) or f"; one of {', '.join(ACTIONS)}"
                problem = f"{word}: neither a condition such as loss=ms nor an action{hint}"
                raise ConfigError([problem])
    elif action == "compare":
        _check_compared(words, as_json)
    elif not words:
        raise ConfigError([f"{action}: takes runs, by id"])


def _check_compared(words: Sequence[str], as_json: bool) -> None:
    """Raises ConfigError for words that `compare` does not take."""
    if len(words) < 2:
        raise ConfigError(["compare: takes two or more runs, by id, or two files of embeddings"])
    files = [word for word in words if _is_file(word)]
    if files and len(words) > 2:
        problem = f"{files[0]}: a file of embeddings is compared with a single run or file"
        raise ConfigError([f"compare: {problem}; name two"])
    if as_json:
        raise ConfigError(["compare: prints tables only; leave out --json"])


def _check_options(action: str, options: Namespace) -> None:
    """Raises ConfigError for options that an action does not take."""
    typed = {"--metrics": bool(options.metrics), "--no-queries": options.no_queries}
    actions = dict.fromkeys(typed, ("compare",)) | {"--yes": ("rm", "clean")}
    for name, is_typed in {**typed, "--yes": options.yes}.items():
        if is_typed and action not in actions[name]:
            takers = " and ".join(actions[name])
            raise ConfigError([f"{name}: is an option of {takers}; leave it out"])
    if options.json and action in ("rm", "clean"):
        raise ConfigError([f"--json: {action} prints text only; leave it out"])
    if options.metrics and len(options.words) > 3:  # compare, and more than two runs
        raise ConfigError(["--metrics: compares the queries of two runs; name two"])
    if all(typed.values()):
        raise ConfigError(["--metrics: has no effect with --no-queries; leave out one of them"])


def _is_file(word: str) -> bool:
    """Returns whether a word of `compare` names a file of embeddings, by its ending."""
    return Path(word).suffix.lower() in EMBEDDING_FILES and not Path(word).is_dir()


def _compare(words: Sequence[str], runs: Runs, all_rows: Runs, options: Namespace) -> None:
    """Prints the comparison of runs, or of files of embeddings."""
    from dml.cli.shared_options import check_embeddings
    from dml.results.run_comparison import compare_runs
    from dml.results.run_selection import find_run

    files = [word for word in words if _is_file(word)]
    pair = {word: find_run(word, runs) for word in words if word not in files}
    if files and options.no_queries:
        raise ConfigError(["--no-queries: files of embeddings hold nothing else to compare"])
    for file in files:
        check_embeddings(file)
    folder = options.runs / "comparisons"
    if not files:
        compared = [pair[word] for word in words]
        _print_texts(compare_runs(compared, all_rows, folder, _console().width))
    if len(words) > 2:
        print_plain("queries     not compared: name two runs for a comparison query by query")
    elif not options.no_queries:
        is_asked_for = bool(files or options.metrics)
        _print_queries(words, pair, options.metrics, folder, is_asked_for)


def _print_queries(
    words: Sequence[str],
    pair: Mapping[str, Runs],
    metrics: Sequence[str],
    folder: Path,
    is_asked_for: bool,
) -> None:
    """Prints the comparison of each query, or a line that says why there is none.

    Args:
        words: two runs or files.
        pair: the runs among them.
        metrics: of `--metrics`.
        folder: of the picture.
        is_asked_for: whether the command asks for nothing else.

    Raises:
        UserError: the comparison is asked for, and the queries cannot be compared.
    """
    try:
        texts = _compare_queries(words, pair, metrics, folder)
    except UserError as error:
        if is_asked_for:
            raise
        reason = str(error).removeprefix("compare: ").splitlines()[0]
        texts = [f"queries     not compared: {reason}"]
    print_plain("")
    _print_texts(texts)


def _compare_queries(
    words: Sequence[str], pair: Mapping[str, Runs], metrics: Sequence[str], folder: Path
) -> Iterable[Any]:
    """Returns the comparison of each query.

    Args:
        words: two runs or files.
        pair: the runs among them.
        metrics: of `--metrics`.
        folder: of the picture.
    """
    from dml.results.query_comparison import Source, compare_queries

    sources = []
    for word in words:
        is_run = word in pair
        sources.append(
            Source.of_run(pair[word].by_row[0]) if is_run else Source.of_file(Path(word))
        )
    names = [Path(source.title).stem for source in sources]
    picture = folder / f"{'-'.join(names)}-queries.png"
    return compare_queries(sources[0], sources[1], metrics, picture, _console().width)


def _rank(chosen: Runs, all_rows: Runs) -> tuple[Runs, Iterable[Any]]:
    """Returns the chosen runs, best first, and their table."""
    from dml.results.run_list import best_table, rank_runs

    is_chosen = all_rows.table.folder.isin(chosen.table.folder)
    groups = rank_runs(all_rows.select(all_rows.table[is_chosen]))
    folders: list[str] = []
    for group in groups:
        folders.extend(group.table.folder.unique())
    texts = best_table(groups, _console().width) if groups else ()
    return chosen.select(chosen.table.loc[folders]), texts


def _list(chosen: Runs) -> Iterable[Any]:
    """Returns the table of the chosen runs; nothing if there are none."""
    from dml.results.run_list import run_table

    return () if chosen.table.empty else run_table(chosen, _console().width)


def _print_json(chosen: Runs) -> None:
    from dml.results.run_list import to_json

    print(escape_json(to_json(chosen)))


def _print_texts(texts: Iterable[Any]) -> None:
    console = _console()
    for text in texts:
        console.print(text, soft_wrap=True)


def _console() -> PlainConsole:
    from dml.core.plain_console import PlainConsole  # imported late: it loads rich

    # Colors only on a terminal. A pipe and a file have no width.
    is_narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return PlainConsole() if is_narrow else PlainConsole(width=WIDE)


def plan_removal(runs: Iterable[StoredRun], whole: bool) -> list[Removal]:
    """Returns what to remove: the folders of whole runs, or only unused files.

    Unused are folders of runs without an evaluation, the trials of finished runs, and incomplete
    files of killed processes. Runs that are being trained keep all files.

    Raises:
        UserError: a process is at work in one of the whole runs.
    """
    from dml.core.locks import find_held

    removals = []
    for run in runs:
        if find_held(run.folder):
            if whole:
                raise UserError(f"rm: a process works in {run.id}; stop it first (Ctrl-C)")
            continue
        for path, reason in _list_removable(run, whole):
            sizes = [f.lstat().st_size for f in (path, *path.rglob("*")) if f.is_file()]
            removals.append(Removal(path, run.folder, reason, sum(sizes)))
    return removals


def _list_removable(run: StoredRun, whole: bool) -> list[tuple[Path, str]]:
    """Returns what to remove of a run in which no process works, with the reasons."""
    from dml.runs.folder.stored_run import State

    is_empty = run.state == State.EMPTY and run.config is not None
    if whole or (is_empty and not any(_find_foreign(run.folder))):
        return [(run.folder, f"{run.state} run")]
    unused = [(path, "half-written") for path in _find_partial(run.folder)]
    if run.state == State.FINISHED:
        unused += [(path, "trials of a search") for path in run.folder.glob("search/trials")]
    return unused


def _find_partial(folder: Path) -> Iterator[Path]:
    """Yields files that were being written when their process was killed."""
    for path in folder.rglob(".*.partial"):
        if PARTIAL.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path


def _find_foreign(folder: Path) -> Iterator[Path]:
    """Yields files in the folder of an empty run that no run has written."""
    for path in folder.rglob("*"):
        of_tracker = path.relative_to(folder).parts[0] in TRACKERS
        known = path.name in OF_EMPTY_RUNS or path.suffix == ".lock" or PARTIAL.fullmatch(path.name)
        is_folder = path.is_dir() and not path.is_symlink()
        if not (of_tracker or known or is_folder):
            yield path


def _remove(removals: Sequence[Removal], sure: bool) -> int:
    """Lists the files to remove, asks, and removes them, and empty parents of run folders."""
    from rich.filesize import decimal

    for path, _, reason, size in removals:
        print_plain(f"{decimal(size):>7s}  {reason:18s}  {path}")
    total = decimal(sum(removal.size for removal in removals))
    if not removals:
        print("nothing to remove")
    elif not (sure or _confirm(total)):
        print("nothing was removed")
    else:
        for removal in removals:
            _remove_path(removal.path, removal.folder)
        print(f"removed {total}")
    return 0


def _confirm(total: str) -> bool:
    """Returns whether the user agrees to remove a number of bytes.

    Raises:
        UserError: there is no terminal to answer in.
    """
    if not sys.stdin.isatty():
        raise UserError(f"{total} would be removed; --yes removes it without asking")
    try:
        answer = input(f"remove {total}? [y/N] ")
    except EOFError:  # Ctrl-D
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


def _remove_path(path: Path, folder: Path) -> None:
    """Removes a file or folder of a run folder, and the run folder's parent if it is then empty."""
    from dml.core.locks import lock_all

    with lock_all(folder, "run.lock"):  # a process may have started meanwhile
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if path == folder and not any(folder.parent.iterdir()):
        folder.parent.rmdir()
