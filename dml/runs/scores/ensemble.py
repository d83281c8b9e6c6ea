"""The models of one repeat as one: their test embeddings, joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.models.embedder import NORMALIZERS
from dml.retrieval import concatenate
from dml.runs.scores.embeddings_file import load_embeddings
from dml.runs.scores.evaluator import Embedded


def concatenated(files: Sequence[Path], normalize: str, device: torch.device) -> Embedded:
    """The test embeddings of several models, each normalized, joined, and normalized again.

    Args:
        files: the models' embeddings of the same images (`save_embeddings`).
        normalize: `embedder.normalize`; models without a normalizer are joined by L2.
        device: where to score the result.

    Raises:
        UserError: a file is missing or damaged.
    """
    models = [load_embeddings(file, device) for file in files]

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return concatenate(parts, F.normalize if normalize == "none" else NORMALIZERS[normalize])

    whole = replace(models[0], query=joined([model.query for model in models]))
    galleries = [model.gallery for model in models if model.gallery is not None]
    return replace(whole, gallery=joined(galleries)) if galleries else whole
