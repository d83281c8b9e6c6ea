"""Command that trains and evaluates one model, or a grid of them: `dml train`, `train.py`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dml.cli.parser import Parser, hydra_parser
from dml.core.errors import ConfigError
from dml.core.installation import shell_command
from dml.core.launcher import read_launch, read_sweep_size, sweep_name

_first_start: list[float] = []  # of the present command
DESCRIPTION = """\
Trains an embedding network, scores retrieval on unseen classes, and writes one run folder.

  {train}                                   glyphs, small CNN, MFCWMS
  {train} loss=mfcont data=cub              choose from the groups below
  {train} optim.lr=3e-5 protocol.epochs=20  set any value by its dotted name
  {train} -m loss=mfcwms,mfcont seed=0,1,2  a grid of runs
  {train} --cfg job                         print the config without a run

Groups and their choices (group=choice):

{groups}

Parts of yours, in a file of this folder, by <part>._target_=<file>.<class>:

  loss (loss=custom), method (method=custom), backbone (backbone=custom),
  data.reader (data=custom), data.sampler, transform, optim, optim.schedule, tracking,
  +loss.miner, +evaluation.metrics.<name>, 'transform.then=[{{_target_: …}}]'

There is no search by default. params=<file>|<table> sets the values of a search or a paper.

Exit status: 0 finished, 1 a run failed, 2 wrong command. Stopped by Ctrl-C (130),
SIGTERM (143), a closed terminal (129) or max_minutes (75), a run is saved and the
same command continues it.
"""


def train(cfg: Any) -> tuple[float | None, tuple[Path, Path]]:
    """Runs the training of a composed config.

    Returns:
        The score for a sweeper to maximize; `outputs`, and the folder of the run.
    """
    from dml.cli.hydra_command import typed_overrides
    from dml.config.check import check
    from dml.config.own_code import record_own_code

    notes = record_own_code(cfg)
    config, overrides = check(cfg), typed_overrides()
    from dml.cli.early_reading import read_early
    from dml.runs.folder.run_folder import RunFolder

    check_outputs(config)
    folder = RunFolder.of(config)
    begins = config.overwrite or not folder.summary.exists()
    dataset = None
    if begins and config.tracking["_target_"] == "dml.tracking.Tracker":  # others may refuse first
        dataset = read_early(config)
    # What is wrong above is reported before torch is loaded, which takes seconds.
    from dml.runs.console import name_lines, print_line
    from dml.runs.experiment import run

    name_lines(sweep_name(overrides))
    for note in notes:
        print_line(f"note: {note}")
    keep_memory(config)
    summary = run(config, overrides, sweep_position(), dataset=dataset, started=first_start())
    score = selection_score(summary)
    return score, (Path(config.outputs), folder.path)


def selection_score(summary: dict[str, Any]) -> float | None:
    """Returns the score that selected the epoch, 0–1: mean over folds, then over repeats.

    It is of validation classes, or of test classes where the protocol selects on those. None while
    another process trains the best configuration of a search.
    """
    from dml.core.option_values import selection_section

    metric, _, selected_on = str(summary.get("selected_by")).partition(" on ")
    scores = summary.get(selection_section(selected_on), {}).get(metric)
    return None if scores is None else float(scores["mean"])


def check_outputs(config: Any) -> None:
    """Raises ConfigError if the option `outputs` cannot be a folder."""
    from dml.core.outputs import folder_problem

    problem = folder_problem(config.outputs)
    if problem:
        raise ConfigError([f"outputs: {problem}; give the folder of your runs"])


def keep_memory(config: Any) -> None:
    """Applies the option `keep_memory` to this process if the run is on the CPU."""
    if config.keep_memory:
        keep_memory_on(config.device)


def keep_memory_on(device: str) -> None:
    """Keeps freed memory in this process if its networks are on the CPU.

    Args:
        device: as the option of that name.
    """
    from dml.core.memory import keep_freed_memory
    from dml.training.device import resolve_device

    if resolve_device(device).type == "cpu":
        keep_freed_memory()


def first_start() -> float:
    """Returns when the first run of this command began in this process (`time.monotonic`).

    `max_minutes` counts from there: the time of a cluster's job is that of all its runs.
    """
    from hydra.core.hydra_config import HydraConfig

    begins = read_sweep_size() == 1 or HydraConfig.get().job.num == 0
    if begins or not _first_start:
        _first_start[:] = [time.monotonic()]
    return _first_start[0]


def sweep_position() -> str:
    """Returns `run 2 of 6` in a multirun, else an empty string."""
    from hydra.core.hydra_config import HydraConfig

    size = read_sweep_size()
    return f"run {HydraConfig.get().job.num + 1} of {size}" if size > 1 else ""


def resume(folder: str, words: list[str], trust: bool = False) -> None:
    """Resumes the run in a folder, which may have been moved; see `dml.runs.experiment`."""
    from dml.runs.folder.run_folder import load_options

    # A wrong folder is reported before torch is loaded.
    load_options(folder, trust, trains=True, words=words)
    from dml.runs.experiment import resume

    resume(folder, words, trust)


def show_sweep(runs: list[tuple[Path, Path]]) -> None:
    """Prints a table of a multirun's finished runs, best first, and draws their curves.

    Of a single run, the nearest published number.

    Args:
        runs: `outputs` and folder of each run.
    """
    if not runs or read_launch().rank > 0:
        return
    from dml.core.plain_console import PlainConsole
    from dml.results.sweep_summary import summarize_sweep

    console = PlainConsole()
    outputs = runs[0][0]
    folders = [folder for _, folder in runs]
    for text in summarize_sweep(folders, outputs, console.width):
        console.print(text, soft_wrap=True)


def parser() -> Parser:
    """Returns a parser for completion only: Hydra reads the words of this command."""
    return hydra_parser("train")


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    from dml.cli.hydra_command import run_command

    return run_command(words, train, "train", describe, resume, show_sweep)


def describe() -> str:
    """Returns the help of the command, with the choices of every group."""
    from dml.config.command_line import choices_for_help

    return DESCRIPTION.format(train=shell_command("train"), groups=choices_for_help())
