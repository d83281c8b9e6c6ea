"""Random wrong commands: python scripts/fuzz_commands.py --seed 0 --number 600

Every command runs in a forked process in a fresh copy of a small folder with a run, embeddings,
photos, and files that cannot be read. It fails if it prints a traceback or dies of a signal, if it
neither writes nor uses the processor for 30 s, if it ends with status 0 although a word is known to
be wrong, or if a file that existed has changed. A command that works longer than --seconds is cut,
which is no failure. --only repeats one by its number. Linux only.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import clone  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, whole_number
from scripts.fuzz.cases import Case, make_case
from scripts.fuzz.commands import COMMANDS
from scripts.fuzz.place import prepare
from scripts.fuzz.process import Ending
from scripts.fuzz.verdict import Outcome, try_case

ONCE = ("dml.runs.experiment", "dml.runs.image_embeddings")  # torch; commands import it late
SHOWN = 300  # characters of the output of a command that fails
PROGRESS = 100  # commands between two lines


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns 0 if no command failed, else 1."""
    parser = Parser(__doc__)
    parser.add_argument("--seed", type=whole_number(0), default=0)
    parser.add_argument(
        "--number", type=whole_number(0), default=600, help="of commands (default: 600)"
    )
    parser.add_argument(
        "--first", type=whole_number(0), default=0, help="number of the first command"
    )
    parser.add_argument(
        "--only", type=whole_number(0), help="the command of this number, with its output"
    )
    parser.add_argument("--names", nargs="+", choices=COMMANDS, default=[*COMMANDS], metavar="name")
    parser.add_argument("--seconds", type=float, default=60.0, help="after which one is cut")
    options = parser.parse(argv)
    numbers = range(options.first, options.first + options.number)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    for module in ONCE:
        importlib.import_module(module)
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as name:
        prepared = Path(name) / "prepared"
        prepared.mkdir()
        prepare(prepared)
        for number in numbers:
            case = make_case(options.seed, number, options.names)
            outcome = try_case(case, prepared, options.seconds)
            counts.update(_count(outcome))
            if outcome.problems or options.only is not None:
                _show(number, case, outcome, SHOWN if options.only is None else None)
            if counts["commands"] % PROGRESS == 0:
                print(_describe(counts), flush=True)
    print(_describe(counts))
    return int(counts["failed"] > 0)


def _count(outcome: Outcome) -> dict[str, int]:
    return {
        "commands": 1,
        "failed": bool(outcome.problems),
        "cut": outcome.ended.ending is Ending.CUT,
        "successful": outcome.ended.status == 0,
    }


def _describe(counts: Counter[str]) -> str:
    return " ".join(f"{name}={count}" for name, count in counts.items())


def _show(number: int, case: Case, outcome: Outcome, characters: int | None) -> None:
    """Prints a command, what is wrong, and the end of its output; None: all of it."""
    text = outcome.text[-characters:] if characters else outcome.text
    print(f"{number}: {', '.join(outcome.problems)}\n    {case.line}")
    for line in text.splitlines():
        print(f"    {ascii(line)[1:-1]}")
    print(end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
