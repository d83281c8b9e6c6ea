"""`dml evaluate`: scores stored embeddings, a run's network, or an off-the-shelf backbone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from dml.config.options import is_below
from dml.config.schema import EvaluateConfig
from dml.core.atomic_io import write_json
from dml.core.errors import ConfigError
from dml.core.progress import open_display
from dml.runs.compression_table import COMPRESS
from dml.runs.console import console, print_line, print_scores
from dml.runs.evaluation.measures import MEASURES, asked_measures, check_measures, not_scores
from dml.runs.evaluation.network import BY, OF_IMAGES, OF_LOADING, score_network
from dml.runs.evaluation.stored_embeddings import score_file
from dml.runs.resource_errors import translate_resource_errors
from dml.training.process_state import restored_process_state

# Options that are used; others are ignored for stored embeddings, or decided by the run.
FOR_BOTH = {
    "recall_at",
    "errors",
    "per_query",
    "evaluation.backend",
    "device",
    "overwrite",
    "outputs",
}
CUSTOM_METRICS = "evaluation.metrics"
OF_TRAINING = ("loss", "method", "optim", "search", "space", "params")
FOR_EMBEDDINGS = {"embeddings", MEASURES, COMPRESS, *FOR_BOTH}
FOR_RUN = {"run", "trust", "save", "data.root", BY, MEASURES, COMPRESS, *FOR_BOTH}
FOR_RUN |= {*OF_LOADING, *OF_IMAGES}


@restored_process_state()
def evaluate(config: EvaluateConfig, typed: Collection[str] = ()) -> dict[str, Any]:
    """Scores stored embeddings, the best network of a run, or an off-the-shelf backbone.

    Args:
        config: names the embeddings, the run or the network to score.
        typed: options that the user gave. The data of a run is expected at the path that the run
            used, unless `data.root` is among them.

    Returns:
        The content of `evaluation.json`, which is written next to the embeddings, into the run
        folder, or under `outputs/evaluations/`: for a network without a run, and if `outputs` is
        among `typed`.

    With `errors` and `per_query` it also writes a page and a table of the queries there.

    Raises:
        ConfigError: options without effect.
        UserError: embeddings, run or data cannot be read or scored, or the folder of the scores
            cannot be written to.
    """
    _check_effect(config, typed)
    check_measures(config, typed)
    with open_display(console), translate_resource_errors():
        if config.embeddings is None:
            result, path, names = score_network(config, typed)
        else:
            result, path = score_file(config, Path(config.embeddings), typed)
            names = [*config.evaluation.metrics, *not_scores(asked_measures(config, typed))]
    write_json(path, result)
    print_scores(result, names)
    print_line(f"scores      {path}")
    return result


def _check_effect(config: EvaluateConfig, typed: Collection[str]) -> None:
    """Raises ConfigError for options that embeddings, or a run, decide themselves.

    Also for those of a training, which a network without a run does not have.
    """
    if config.embeddings:
        used = FOR_EMBEDDINGS
    elif config.run:
        used = FOR_RUN
    else:
        _refuse_training(typed)
        return
    ignored = []
    for name in sorted(typed):
        if name not in used and not is_below(name, [CUSTOM_METRICS]):
            ignored.append(f"{name}: has no effect here; leave it out")
    if ignored:
        raise ConfigError(ignored)


def _refuse_training(typed: Collection[str]) -> None:
    """Raises ConfigError for options of a training."""
    ignored = []
    for name in sorted(typed):
        if is_below(name, OF_TRAINING):
            ignored.append(
                f"{name}: nothing is trained here; leave it out, or give run=<run folder>"
            )
    if ignored:
        raise ConfigError(ignored)
