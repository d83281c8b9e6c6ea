"""Embeddings of images, batch by batch in a file that an interrupted call continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dml.core.progress import show_progress
from dml.core.row_store import open_store
from dml.data.image_index import Subset
from dml.data.samplers import augmentation_seeds
from dml.data.transforms import Views
from dml.runs.model import Model
from dml.training.device import autocast


def unfinished_folder(path: Path) -> Path:
    """Returns the folder of the rows of a file that an interrupted call has embedded."""
    return path.with_name(f".{path.name}.partial")


def embed_rows(
    model: Model,
    made_by: dict[str, Any],
    folder: Path,
    content: Any,
    positions: np.ndarray | None = None,
) -> np.ndarray:
    """Embeds the images of a model batch by batch into a file of `folder`.

    Complete batches of an interrupted call with the same `made_by` and images are kept.

    Args:
        model: with the images.
        made_by: what the embeddings depend on.
        folder: of the file.
        content: of the images' files (`FileStates.content`); None: they are no files.
        positions: numbers of the images, which seed their views; None: 0, 1, ….

    Returns:
        Embeddings N×(1 + views)×D of the file, which is mapped.
    """
    index, views, size = model.index, made_by["views"], made_by["batch_size"]
    dtype = np.dtype(made_by["dtype"])
    transform = model.transforms.test
    if views:
        transform = Views(transform, model.transforms.train, views)

    def forward(inputs: Tensor) -> Tensor:
        pooled = model.embedder.pool(model.embedder.features(inputs))
        return pooled.float() if made_by["features"] else model.embedder.project(pooled)

    transforms = model.config.transform.model_dump(mode="json")
    state = [made_by, transforms, index.fingerprint(), content]
    store = folder / hashlib.sha256(json.dumps(state).encode()).hexdigest()
    side = model.pixels or 64
    with torch.inference_mode(), autocast(model.config.precision, model.device):
        width = forward(torch.zeros(1, 3, side, side, device=model.device)).shape[1]
        bytes_per_row = (1 + views) * width * dtype.itemsize
        with open_store(store) as file:
            done = file.tell() // (bytes_per_row * size) * size
            file.truncate(done * bytes_per_row)
            rest = Subset(index, np.arange(done, len(index.images)))
            keys: Sequence[Any] = range(len(rest))
            if views:
                numbers = np.arange(len(index.images)) if positions is None else positions
                seeds = _seeds_of(numbers)
                keys = list(enumerate(seeds[done:]))
            loading = model.loading_with("auto")
            batches = loading.batches(rest, transform, sampler=keys, batch_size=size)
            for inputs, _ in show_progress(batches, "embedding batch", len(batches)):
                parts = inputs.unbind(1) if views else [inputs]
                embedded = torch.stack([forward(part) for part in parts], 1)
                file.write(embedded.cpu().numpy().astype(dtype).tobytes())
                file.flush()
            return np.memmap(file, dtype, "r", shape=(len(index.images), 1 + views, width))


def _seeds_of(numbers: np.ndarray) -> list[int]:
    """Returns the seeds by which the views of images are drawn, of their increasing numbers."""
    seeds = augmentation_seeds(0, 0, int(numbers[-1]) + 1)
    return [seeds[number] for number in numbers]
