"""Command that starts several processes which train one model: `dml torchrun`."""

from __future__ import annotations

import argparse
import logging
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from dml.cli.parser import MISSING, Parser
from dml.cli.program import DISTRIBUTED
from dml.core.errors import ConfigError, UserError, first_line, nearest
from dml.core.exit_status import ExitStatus
from dml.core.installation import shell_command

DESCRIPTION = """\
Trains one model by several processes, each on a GPU, with the launcher of PyTorch.

  {torchrun} --nproc-per-node=4 train data=sop loss=mfcwms
  {torchrun} --nproc-per-node=4 check outputs=/shared/outputs

On two machines, the same command on both:

  {torchrun} --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\
      --rdzv-endpoint=<first machine>:29500 train data=sop loss=mfcwms

The options before the command are those of torchrun, which torchrun --help describes. Unlike
torchrun, it ends with the exit status of the command (143 after SIGTERM, 75 after max_minutes), and
without a traceback. A thread per process, unless OMP_NUM_THREADS says otherwise.
"""
PROGRAM = "dml"  # module that each process runs
NUMBERS = re.compile(r"(?P<low>[1-9]\d*)(:(?P<high>[1-9]\d*))?")


def parser() -> Parser:
    """Returns the parser of the command; torch's parser reads the options."""
    parser = Parser(DESCRIPTION.format(torchrun=shell_command("torchrun")), "torchrun")
    parser.add_argument("command", choices=DISTRIBUTED, help="after the options of torchrun")
    parser.add_argument("words", nargs="*", help="of the command")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns the exit status of its processes.

    Raises:
        ConfigError: a wrong word.
        UserError: a process was killed.
    """
    if words and words[0] in ("--help", "-h"):
        parser().print_help()
        return ExitStatus.FINISHED
    # imported late: --help need not load torch
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    options = _parse(run.get_args_parser(), words)
    try:
        with _quiet_logs():
            run.run(options)
    except ValueError as error:  # of an option
        raise ConfigError([f"torchrun: {first_line(error)}"]) from error
    except (RendezvousError, RuntimeError) as error:  # machines that do not meet
        raise UserError(f"torchrun: {first_line(error)}") from error
    except SignalException as stop:  # the processes have saved, and said so
        return 128 + stop.sigval
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        name = signal.Signals(-failure.exitcode).name
        raise UserError(
            f"torchrun: process {rank} was killed by {name}; run the same command to continue from "
            f"the last checkpoint"
        ) from None
    return ExitStatus.FINISHED


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Returns torchrun's options for processes that run a command of `dml`.

    Args:
        parser: of torchrun, to which the command is the script.

    Raises:
        ConfigError: a wrong option, or a command that one process must do.
    """

    def refuse(message: str) -> NoReturn:
        if message.startswith(MISSING):
            message = f"missing: a command ({', '.join(DISTRIBUTED)})"
        raise ConfigError([f"{message}; {shell_command('torchrun')} --help shows calls"])

    parser.error = refuse  # type: ignore[method-assign]
    options = parser.parse_args(words)
    command = options.training_script
    if command not in DISTRIBUTED:
        hint = nearest(command, DISTRIBUTED) or f"; one of {', '.join(DISTRIBUTED)}"
        raise ConfigError([f"torchrun: '{command}' is no command of several processes{hint}"])
    _check_numbers(options)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # nohup
        options.signals_to_handle = "SIGTERM,SIGINT,SIGQUIT"
    options.module = True
    options.training_script = PROGRAM
    options.training_script_args = [command, *options.training_script_args]
    return options


def _check_numbers(options: argparse.Namespace) -> None:
    """Raises ConfigError for numbers of processes and machines of which torch asserts the range."""
    machines = NUMBERS.fullmatch(options.nnodes)
    is_range = machines and int(machines["low"]) <= int(machines["high"] or machines["low"])
    if not is_range:
        problem = f"{options.nnodes!r} is neither a number from 1 nor a range such as 1:4"
        raise ConfigError([f"--nnodes: {problem}"])
    processes = options.nproc_per_node
    is_number = processes.lstrip("+-").isdecimal()
    if is_number and int(processes) < 1:
        raise ConfigError([f"--nproc-per-node: {processes} is below 1"])
    if options.max_restarts < 0:
        raise ConfigError([f"--max-restarts: {options.max_restarts} is below 0"])


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Leaves out the log of torch's launcher: the processes print their errors themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
