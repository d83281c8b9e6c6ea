"""Command that evaluates a run, a pretrained network or embeddings: `dml evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dml.cli.parser import Parser, hydra_parser
from dml.cli.shared_options import check_embeddings
from dml.cli.train_command import check_outputs, keep_memory
from dml.core.installation import shell_command
from dml.core.signals import raise_on_signals

DESCRIPTION = """\
Scores retrieval on unseen classes with a trained run or a pretrained network.

  {evaluate} run=outputs/single/<run>/<seed>
  {evaluate} backbone=dino_s16 data=cub save=float16
  {evaluate} embeddings=file.npz recall_at=[1,10,100]
  {evaluate} run=<folder> errors=true per_query=true

Exit status: 0 finished, 1 failed, 2 wrong command.
"""

# As other commands write such options.
FLAGS = {
    "--errors": "errors=true",
    "--per-query": "per_query=true",
    "--overwrite": "overwrite=true",
}


def evaluate(cfg: Any) -> tuple[None, None]:
    """Runs the evaluation of a composed config; it has neither a score nor a value."""
    from dml.config.check import check
    from dml.config.schema import EvaluateConfig

    config = check(cfg, EvaluateConfig)
    if config.run is not None:
        from dml.runs.folder.run_folder import load_options

        load_options(config.run, config.trust)
    elif config.embeddings is not None:
        check_embeddings(config.embeddings)
    else:
        from dml.cli.early_reading import read_early

        check_outputs(config)
        read_early(config)
    # What is wrong above is reported before torch is loaded, which takes seconds.
    from hydra.core.hydra_config import HydraConfig

    from dml.runs.evaluation.evaluate import evaluate

    keep_memory(config)
    overrides = HydraConfig.get().overrides.task
    names = {word.partition("=")[0].lstrip("+~") for word in overrides}
    with raise_on_signals():
        evaluate(config, names)
    return None, None


def parser() -> Parser:
    """Returns a parser for completion only: Hydra reads the words of this command."""
    return hydra_parser("evaluate")


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    from dml.cli.hydra_command import run_command

    words = [FLAGS.get(word, word) for word in words]
    return run_command(words, evaluate, "evaluate", describe)


def describe() -> str:
    """Returns the help of the command."""
    return DESCRIPTION.format(evaluate=shell_command("evaluate"))
