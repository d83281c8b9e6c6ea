"""Scores of embeddings, with the metrics of the user."""

from __future__ import annotations

from collections.abc import Collection

from dml.config.schema import Config, EvaluateConfig
from dml.core.counts import count_of
from dml.core.errors import ConfigError
from dml.core.progress import show_task
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.console import print_line
from dml.runs.custom_metrics import CustomMetric, score_all

USUAL_RECALLS = (1, 2, 4, 8)  # values of K where no dataset has its own


def score_embeddings(
    config: EvaluateConfig,
    embeddings: SplitEmbeddings,
    recall_at: Collection[int],
    trained: Config,
) -> dict[str, float]:
    """Returns the scores, and the metrics of the user that the command or the run name."""
    nodes = {**trained.evaluation.metrics, **config.evaluation.metrics}
    metrics = [CustomMetric(name, node) for name, node in nodes.items()]
    problems = []
    for metric in metrics:
        problems += metric.problems
    if problems:
        raise ConfigError(problems)
    _note_certain_recalls(config.recall_at or (), embeddings)
    with show_task("scoring"):
        scores = embeddings.score(config.recall_at or [*recall_at], config.evaluation.backend)
        scores["mean_average_precision"] = embeddings.mean_average_precision()
        return scores | score_all(metrics, embeddings, is_final=True)


def _note_certain_recalls(recall_at: Collection[int], embeddings: SplitEmbeddings) -> None:
    """Prints a note on values of K that are as large as the gallery: Recall@K is 1 for them."""
    available = len(embeddings.query) - 1
    if embeddings.gallery is not None:
        available = len(embeddings.gallery)
    certain = [str(k) for k in recall_at if k >= available]
    if certain:
        print_line(
            f"note: recall_at: a query can find {count_of(available, 'image')}, so that Recall@K "
            f"is 100 by definition for K = {', '.join(certain)}"
        )
