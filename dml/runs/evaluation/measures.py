"""Measures and forms of smaller vectors that an evaluation is asked for."""

from __future__ import annotations

from collections.abc import Collection

from dml.config.schema import Config, EvaluateConfig
from dml.core.errors import ConfigError, UserError
from dml.core.metric_names import is_score
from dml.core.progress import show_task
from dml.data.image_index import Subset
from dml.data.protocol import create_jobs
from dml.methods.extra_metrics import OF_TRAINING, false_match_rates, measure_embeddings
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.compression_table import COMPRESS, SmallerVectors
from dml.runs.console import print_line
from dml.runs.folder.run_folder import RunFolder
from dml.runs.model import Model

MEASURES = "evaluation.measures"


def check_measures(config: EvaluateConfig, typed: Collection[str]) -> None:
    """Raises ConfigError if a measure that was asked for needs a training run."""
    for name in asked_measures(config, typed):
        if name in OF_TRAINING:
            raise ConfigError(
                [f"{MEASURES}: {name} needs the training; set it there, or leave it out here"]
            )


def asked_measures(config: EvaluateConfig, typed: Collection[str]) -> list[str]:
    """Returns the measures that the user gave, each once; an experiment's do not count."""
    if MEASURES not in typed:
        return []
    return list(dict.fromkeys(config.evaluation.measures))


def measures_of_network(
    config: EvaluateConfig, typed: Collection[str], trained: Config
) -> list[str]:
    """Returns the measures of a network: those that the user gave, or else those of its run.

    Without those that need the training: the summary of the run has them.
    """
    if MEASURES in typed or config.run is None:
        return asked_measures(config, typed)
    return [name for name in trained.evaluation.measures if name not in OF_TRAINING]


def not_scores(measures: Collection[str]) -> list[str]:
    """Returns the measures that a table of scores does not have."""
    return [name for name in measures if not is_score(name)]


def measure_network(
    model: Model,
    run: str | None,
    measures: Collection[str],
    embeddings: SplitEmbeddings,
    is_asked: bool,
) -> dict[str, float]:
    """Returns the measures of a network on the images that are scored.

    Args:
        model: of these images.
        run: the run folder.
        measures: their names.
        embeddings: of the images.
        is_asked: whether the user named the measures. Those of a run were chosen for its images:
            if they cannot be computed for others, a note says so.
    """
    validation = _embed_validation(model, run, measures)
    try:
        return measure(measures, embeddings, validation)
    except UserError as error:
        if is_asked:
            raise
        print_line(f"note: {error}; the measures of the run are left out")
        return {}


def _embed_validation(
    model: Model, run: str | None, measures: Collection[str]
) -> SplitEmbeddings | None:
    """Returns embeddings of the validation images of the first model, which choose thresholds.

    Args:
        model: of the images that are scored.
        run: the run folder. If it was trained on other images, none are known to be unseen.
        measures: of which some may need thresholds.

    Returns:
        None: there are none but the test images, or no measure needs them.
    """
    index, config = model.index, model.config
    has_training = bool((index.roles == "train").any())
    if not has_training or not false_match_rates(measures):
        return None
    if run is not None and RunFolder(run).has_other_images(index):
        return None
    first, *_ = create_jobs(config.protocol.splits, 1, index, seed=config.seed)
    if first.validation is first.test or not len(first.validation.query):
        return None
    return model.embed(first.validation)


def measure(
    names: Collection[str], embeddings: SplitEmbeddings, validation: SplitEmbeddings | None = None
) -> dict[str, float]:
    """Returns the measures of embeddings; see `measure_embeddings`.

    Raises:
        UserError: they need other embeddings or labels, such as two images of a class.
    """
    with show_task("measuring"):
        try:
            return measure_embeddings(names, embeddings, validation)
        except ValueError as error:
            raise UserError(f"evaluation: {MEASURES}: {error}") from error


def asked_forms(config: EvaluateConfig, typed: Collection[str]) -> list[str]:
    """Returns the forms of smaller vectors that the user gave; an experiment's do not count."""
    return config.evaluation.compress if COMPRESS in typed else []


def smaller_vectors(
    config: EvaluateConfig, typed: Collection[str], trained: Config, training: Subset
) -> SmallerVectors:
    """Returns the forms of smaller vectors that the user gave, or else those of the run."""
    if COMPRESS in typed or config.run is None:
        return SmallerVectors(asked_forms(config, typed), training)
    return SmallerVectors(trained.evaluation.compress, training)
