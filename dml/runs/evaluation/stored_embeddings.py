"""Scores of stored embeddings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from dml.config.schema import EvaluateConfig
from dml.core.errors import ConfigError, UserError
from dml.retrieval.embeddings import SplitEmbeddings, load_embeddings
from dml.retrieval.vector_lengths import describe_lengths
from dml.runs.compression_table import check_uncompressed, score_file_forms
from dml.runs.console import print_line
from dml.runs.error_files import read_stored_images
from dml.runs.evaluation.measures import asked_forms, asked_measures, measure
from dml.runs.evaluation.outputs import EVALUATIONS, EvaluationOutputs, name_place
from dml.runs.evaluation.scores import USUAL_RECALLS, score_embeddings
from dml.runs.seen_classes import describe_seen_embeddings
from dml.training.device import resolve_device


def score_file(
    config: EvaluateConfig, source: Path, typed: Collection[str]
) -> tuple[dict[str, Any], Path]:
    """Returns the scores of stored embeddings and the path of their file.

    Args:
        config: of the command.
        source: the file of embeddings.
        typed: options that the user gave; with `outputs`, the scores are below that folder and not
            beside the file.
    """
    folder, source_name = source.parent, ""  # beside the file, whose name tells it from others
    if "outputs" in typed:
        folder, source_name = Path(config.outputs) / EVALUATIONS, name_place(source)
    measures = asked_measures(config, typed)
    prefix = f"{source.stem}."
    outputs = EvaluationOutputs.check(config, folder, source.name, measures, prefix, source_name)
    forms = asked_forms(config, typed)
    embeddings = load_embeddings(source, resolve_device(config.device))
    check_uncompressed(source, forms)
    scores = _score(config, source, embeddings, measures)  # checks the embeddings
    for note in _find_notes(source, embeddings):
        print_line(f"note: {note}")
    if outputs.errors.wanted:
        images = read_stored_images(source, embeddings)
        outputs.errors.write(embeddings, *images, config.evaluation.backend)
    outputs.draw_curve(scores, embeddings)
    result = {"name": source.name, "stand_in": False, "metrics": scores}
    if source_name:
        result["source"] = source_name
    if forms:
        recall_at, backend = config.recall_at or USUAL_RECALLS, config.evaluation.backend
        result["compression"] = score_file_forms(source, embeddings, forms, recall_at, backend)
    return result, outputs.scores


def _find_notes(source: Path, embeddings: SplitEmbeddings) -> Iterator[str]:
    """Yields what a reader of the scores must know of the embeddings."""
    seen = describe_seen_embeddings(source)
    if seen:
        yield seen
    if embeddings.queries_are_in_gallery:
        yield (
            "every query equals a row of the gallery and finds it; to leave it out, add self_index "
            "to the file: the row of each query in the gallery"
        )
    if embeddings.collapsed:
        yield "all embeddings are equal; the scores come from the order of the rows"
    lengths = describe_lengths(*embeddings.lengths)
    if lengths:
        yield lengths


def _score(
    config: EvaluateConfig, source: Path, embeddings: SplitEmbeddings, measures: Collection[str]
) -> dict[str, float]:
    """Returns scores and measures; what is wrong with the embeddings names their file."""
    try:
        scores = score_embeddings(config, embeddings, USUAL_RECALLS, config)
        return scores | measure(measures, embeddings)
    except ConfigError:
        raise
    except UserError as error:
        reason = str(error).removeprefix("evaluation: ")
        raise UserError(f"embeddings: {source}: {reason}") from error
