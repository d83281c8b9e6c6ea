"""Command that tries a machine: `dml check`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dml.cli.parser import Parser, set_completer
from dml.core.errors import ConfigError, nearest
from dml.core.exit_status import ExitStatus
from dml.core.installation import git_revision, shell_command, versions
from dml.core.outputs import folder_problem
from dml.core.plain_text import print_plain

if TYPE_CHECKING:  # otherwise imported late: --help need not load torch
    from dml.cli.machine.outcome import Check, Outcome

DESCRIPTION = """\
A test of this machine, in about a minute, before long runs.

  {check}                          this machine, and the folder outputs
  {check} outputs=/shared/outputs  the folder of another disk
  {torchrun} --nproc-per-node=2 check outputs=/shared/outputs

Tries the GPU or the processor in each precision, a step of training against float64, processes that
work together, locks, speed and space of the disk, the hub and the servers of datasets, and the
speed of reading and embedding images; estimates the first row of a table. From a clone on a GPU it
also runs the tests that need one. Nothing is downloaded, and nothing stays. The last lines are for
an issue. Exit status 0: all that runs need works; the internet is not needed.
"""
OUTPUTS = "outputs"
WIDEST = 100  # columns of a line
LIMIT_SECONDS = 120.0  # for processes of torchrun that hang


def parser() -> Parser:
    """Returns the parser of the command."""
    commands = {name: shell_command(name) for name in ("check", "torchrun")}
    parser = Parser(DESCRIPTION.format(**commands), "check")
    words = parser.add_argument(
        "words", nargs="*", metavar="outputs=<folder>", help="folder of runs (default: outputs)"
    )
    set_completer(words, lambda prefix, **context: [f"{OUTPUTS}="])
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status.

    Raises:
        ConfigError: a wrong word.
    """
    outputs = _parse_outputs(parser().parse(words).words)
    # imported late: --help need not load torch
    from dml.cli.machine.checks import list_common_checks, list_other_checks
    from dml.training.process_group import distributed_session

    _note_separate_tasks()
    with distributed_session("auto", timedelta(seconds=LIMIT_SECONDS)) as world:
        outcomes = _perform_all(list_common_checks(outputs, world), world.is_main)
    if not world.is_main:
        return ExitStatus.FINISHED  # a failure would end the first one, which prints it
    outcomes += _perform_all(list_other_checks(outputs), True)
    return _summarize(outcomes)


def _parse_outputs(words: Sequence[str]) -> Path:
    """Returns the folder of `outputs=<folder>`."""
    problems = []
    folder = OUTPUTS
    for word in words:
        name, _, folder = word.partition("=")
        if name != OUTPUTS:
            hint = nearest(name, [OUTPUTS]) or "; the command takes outputs=<folder>"
            if os.sep in name:
                hint = f"; write {OUTPUTS}={name}"
            problems.append(f"{name}: no such option{hint}")
        elif not folder:
            problems.append("outputs: is empty; give a folder, or outputs=. for the current one")
        elif folder_problem(folder):
            problems.append(f"outputs: {folder_problem(folder)}; give a folder")
    if len(words) > 1 and not problems:
        problems.append("outputs: is given twice")
    if problems:
        raise ConfigError(problems)
    return Path(folder).expanduser()


def _note_separate_tasks() -> None:
    """Prints that tasks of `srun` do not try anything together, once for all of them."""
    from dml.core.launcher import read_launch

    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    is_first = os.environ.get("SLURM_PROCID") == "0"
    if tasks != "1" and is_first and read_launch().size == 1:
        print_plain(
            f"note: srun started {tasks} separate processes, and each tries its machine alone; "
            f"{shell_command('torchrun')} connects them: docs/guides/check_a_machine.md",
            file=sys.stderr,
            flush=True,
        )


def _perform_all(checks: Iterable[Check], is_main: bool) -> list[tuple[Check, Outcome]]:
    """Performs checks and prints them; returns their outcomes.

    Args:
        checks: in their order.
        is_main: whether this process prints.
    """
    from dml.cli.machine.outcome import describe, perform

    width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
    outcomes = []
    for check in checks:
        outcome = perform(check)
        outcomes.append((check, outcome))
        if is_main:
            print_plain("\n".join(describe(check, outcome, width)), flush=True)
    return outcomes


def _summarize(outcomes: Sequence[tuple[Check, Outcome]]) -> int:
    """Prints whether all works, and a block for an issue; returns the exit status."""
    from dml.cli.machine.outcome import FAILED, describe_for_issue

    failed = [check.name for check, outcome in outcomes if outcome.state == FAILED]
    works = "all that runs need works"
    print_plain(f"\nfailed: {', '.join(failed)}" if failed else f"\n{works}")
    print_plain("\nTo paste into an issue:\n")
    print_plain("\n".join(describe_for_issue(_describe_versions(), outcomes)))
    return ExitStatus.FAILED if failed else ExitStatus.FINISHED


def _describe_versions() -> list[str]:
    """Returns the revision, and the versions of Python and packages."""
    names = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [f"revision {git_revision() or 'unknown'}", names]
