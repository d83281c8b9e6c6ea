"""The program `dml`: its commands, and one place where errors become lines and exit statuses.

A command is a module of this package with `main(words) -> int`, and `parser()` for completion.
Modules are imported late, so that `dml --help` needs neither Hydra nor torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dml.cli.error_lines import report_errors
from dml.core.errors import ConfigError, UserError, nearest
from dml.core.exit_status import ExitStatus
from dml.core.installation import git_revision, shell_command
from dml.core.launcher import is_torchrun, read_launch
from dml.core.signals import raise_on_signals


@dataclass(frozen=True)
class Command:
    """A command of the program.

    Attributes:
        summary: what it does, in one line.
        example: the words of its usual call, after its name.
    """

    summary: str
    example: str


COMMANDS = {
    "train": Command("trains and evaluates a model, or a grid of them", "loss=mfcwms data=cub"),
    "evaluate": Command("scores a run, a pretrained network or embeddings", "run=<run folder>"),
    "embed": Command("writes the embeddings of images to a file", "<run folder> photos x.npz"),
    "search": Command("finds the nearest neighbors of images in such a file", "x.npz photo.jpg"),
    "export": Command("writes the network of a run for use elsewhere", "<run folder> network"),
    "report": Command("compares results with the published ones", "mft_table1"),
    "runs": Command("lists, compares and removes runs", "best data=cub"),
    "prepare": Command("downloads and checks a dataset", "cub"),
    "plan": Command("estimates the cost of an experiment", "mft_table1"),
    "check": Command("tries this machine before long runs", "outputs=/shared/outputs"),
    "torchrun": Command("trains a model on several GPUs", "--nproc-per-node=4 train data=sop"),
}
DISTRIBUTED = ("train", "check")  # commands that several processes work on together
COMPOSED = ("train", "evaluate")  # by Hydra
PACKAGES = ("torch", "hydra")  # without these, the environment is not active
VERSION = "--version"
OPTIONS = ["--help", "-h", VERSION]
COMPLETION = "_ARGCOMPLETE"  # set by a shell that asks for completions


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    Args:
        words: name and arguments of the command; None for those in `sys.argv`.
    """
    return _run(sys.argv[1:] if words is None else list(words))


@report_errors
def _run(words: list[str]) -> int:
    _check_environment()
    if COMPLETION in os.environ:
        from dml.cli.completion import complete

        complete({name: load_command(name).parser() for name in COMMANDS})
    if not words:
        print(describe_commands())
        return ExitStatus.WRONG_COMMAND
    name, *more = words
    if name in OPTIONS:
        _refuse_more(name, more)
        print(describe_version() if name == VERSION else describe_commands())
        return ExitStatus.FINISHED
    if name not in COMMANDS:
        hint = nearest(name, list(COMMANDS) + OPTIONS) or f"; one of {', '.join(COMMANDS)}"
        raise ConfigError([f"dml: '{name}' is not a command{hint}"])
    return _run_command(name, more)


def _run_command(name: str, words: list[str]) -> int:
    if name not in DISTRIBUTED and is_torchrun():
        launch = read_launch()
        if launch.rank > 0:
            return ExitStatus.FINISHED  # the first process does it, once
        if launch.size > 1:
            print(f"note: dml {name} works in one of the {launch.size} processes of torchrun")
    command = load_command(name)
    # Commands with configs handle signals once they are composed; nothing is begun before.
    with nullcontext() if name in COMPOSED else raise_on_signals():
        status: int = command.main(words)
    return status


def _refuse_more(name: str, more: Sequence[str]) -> None:
    """Raises ConfigError for words after an option of the program."""
    if more:
        remedy = f"{shell_command('<command>')} --help describes a command"
        raise ConfigError([f"dml: '{more[0]}' is one word too many after {name}; {remedy}"])


def load_command(name: str) -> Any:
    """Returns the module of a command."""
    return import_module(f"dml.cli.{name}_command")


def describe_commands() -> str:
    """Returns the help of the program: a line for each command, with its usual call."""
    program = shell_command()
    width = max(len(command.summary) for command in COMMANDS.values())
    lines = [
        "Deep metric learning: training, evaluation and comparison with published results.",
        "",
    ]
    for name, command in COMMANDS.items():
        summary = command.summary.ljust(width)
        lines.append(f"  {name:8s}  {summary}  {program} {name} {command.example}")
    lines += [
        "",
        f"{program} <command> --help describes a command; {program} --version",
        "Completion in bash, and in zsh after compinit:",
        '  eval "$(register-python-argcomplete dml)"',
    ]
    return "\n".join(lines)


def describe_version() -> str:
    """Returns the version of this package, and the commit of a clone."""
    from importlib.metadata import PackageNotFoundError, version  # late: --help need not load it

    try:
        number = version("dml-benchmark")
    except PackageNotFoundError:  # a clone that is not installed
        number = "(not installed)"
    revision = git_revision() or ""
    is_commit = revision and not revision.startswith("version")
    return f"dml {number}, revision {revision}" if is_commit else f"dml {number}"


def _check_environment() -> None:
    """Raises UserError where the packages of this project are not installed."""
    for package in PACKAGES:
        if find_spec(package) is None:
            activate = 'run "source .venv/bin/activate" (or "make install")'
            raise UserError(f"{package} is not installed; {activate}")
