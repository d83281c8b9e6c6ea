"""Ensembles: the test embeddings of the models of a repeat, concatenated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.models.embedder import NORMALIZERS
from dml.retrieval import concatenate
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import FOLDS, Job, group_by_repeat
from dml.runs.jobs.job_result import EMBEDDINGS
from dml.runs.scores.embeddings_file import load_embeddings
from dml.runs.scores.evaluator import SplitEmbeddings


def score_ensembles(
    context: RunContext, jobs: Sequence[Job], folder: RunFolder
) -> list[dict[str, Any]] | None:
    """Returns the scores of the concatenated models of each repeat; None for one model a repeat.

    Raises:
        UserError: a file of embeddings is missing or damaged.
    """
    if FOLDS[context.config.protocol.splits] == 1:
        return None
    scores = []
    for folds in group_by_repeat(jobs):
        files = [folder.job(job.name) / EMBEDDINGS for job in folds]
        embeddings = concatenate_models(files, context.config.embedder["normalize"], context.device)
        recall_at = folds[0].test.query.index.recall_at
        metrics = embeddings.score(recall_at, context.config.evaluation.backend)
        size = embeddings.query.shape[1]
        scores.append({"repeat": folds[0].repeat, "metrics": metrics, "embedding_size": size})
    return scores


def concatenate_models(
    files: Sequence[Path], normalize: str, device: torch.device
) -> SplitEmbeddings:
    """Concatenates the normalized embeddings of several models, and normalizes the result.

    Args:
        files: the models' embeddings of the same images (`save_embeddings`).
        normalize: `embedder.normalize`; models without a normalizer are joined by L2.
        device: of the result.

    Raises:
        UserError: a file is missing or damaged.
    """
    models = [load_embeddings(file, device) for file in files]

    def join(parts: Sequence[Tensor]) -> Tensor:
        return concatenate(parts, F.normalize if normalize == "none" else NORMALIZERS[normalize])

    queries = replace(models[0], query=join([model.query for model in models]))
    galleries = [model.gallery for model in models if model.gallery is not None]
    return replace(queries, gallery=join(galleries)) if galleries else queries
