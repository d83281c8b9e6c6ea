"""Embeddings of the test images by the models of a finished run: kept by it, or computed once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from dml.core.atomic_io import check_writable
from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.core.progress import show_task
from dml.data.protocol import Split, protocol_test
from dml.retrieval.embeddings import save_embeddings
from dml.runs.build import Builder
from dml.runs.error_files import images_of_split
from dml.runs.error_page import ShownImages
from dml.runs.folder.run_folder import EMBEDDINGS, RunFolder, load_config
from dml.runs.folder.stored_run import State, StoredRun
from dml.runs.load import load_embedder
from dml.runs.model import Model
from dml.training.device import resolve_device, set_precision
from dml.training.process_state import restored_process_state


def keep_test_embeddings(run: StoredRun, device: str = "auto") -> list[Path]:
    """Returns the files of the embeddings of the test images by each model of a run.

    A file that `evaluation.keep_embeddings` or a protocol of several folds did not keep is computed
    now, and kept where they would have stored it: the next call reads it.

    Args:
        run: a finished run.
        device: that embeds, where a file is missing.

    Returns:
        The files, in the order of repeat and fold.

    Raises:
        UserError: see `list_test_embeddings`; images are missing, or others than those of the run.
        ConfigError: the config of the run names what needs `trust`.
    """
    files = list_test_embeddings(run)
    missing = {key: file for key, file in files.items() if not file.exists()}
    if missing:
        _embed_models(run, missing, resolve_device(device))
    return [*files.values()]


def list_test_embeddings(run: StoredRun) -> dict[tuple[int, int], Path]:
    """Returns (repeat, fold) → file of the embeddings of the test images, in their order.

    Raises:
        UserError: the run is not finished, or has no test images; a file is missing, and its model
            is, too.
    """
    if run.state != State.FINISHED or run.summary is None:
        raise UserError(f"compare: {run.id} is {run.state}, not finished")
    if not run.summary.metrics:
        raise UserError(f"compare: {run.id} has no test images: it was trained on all classes")
    files = {}
    for job in run.summary.jobs:
        folder = RunFolder(run.folder).job(f"repeat{job.repeat}-fold{job.fold}")
        file, weights = folder / EMBEDDINGS, folder / "best.pt"
        if not (file.exists() or weights.exists()):
            raise UserError(f"compare: {run.id} has neither {file} nor {weights}; train it again")
        files[job.repeat, job.fold] = file
    return dict(sorted(files.items()))


@restored_process_state()
def _embed_models(run: StoredRun, files: dict[tuple[int, int], Path], device: torch.device) -> None:
    """Embeds the test images by models (repeat, fold) of a run, and writes their files."""
    remedy = (
        f"{shell_command('evaluate')} run={run.folder} save=float32 outputs=<folder> stores them "
        f"elsewhere, and files of both runs can be compared"
    )
    for file in files.values():
        check_writable(file.parent, "compare", remedy)
    builder = _builder(run, on_gpu=device.type == "cuda")
    split = _read_test(run, builder)
    set_precision(builder.config.precision, device)
    index = split.query.index
    source = builder.source(index)
    for (repeat, fold), file in files.items():
        embedder = load_embedder(builder.config, run.folder, repeat, fold).to(device)
        with show_task(f"embedding the test images of {run.id}"):
            embeddings = Model(builder, embedder, index, device, source).embed(split)
        save_embeddings(file, embeddings, split.names)


def load_test_images(run: StoredRun) -> tuple[ShownImages, ShownImages, Sequence[str]]:
    """Returns the images of queries and gallery of a run, in the order of their embeddings.

    Returns:
        Queries, gallery, and the names of the classes, if the dataset has any.

    Raises:
        UserError: the images are gone, or others than those of the run.
    """
    split = _read_test(run, _builder(run))
    return *images_of_split(split), split.query.index.class_names


def _builder(run: StoredRun, on_gpu: bool = False) -> Builder:
    return Builder(load_config(run.folder).on_device(on_gpu))


def _read_test(run: StoredRun, builder: Builder) -> Split:
    """Returns the test images of a run.

    Raises:
        UserError: they are gone, or others than those of the run.
    """
    with show_task(f"reading {builder.config.data.variant}"):
        index = builder.index(builder.read_dataset())
    folder = RunFolder(run.folder)
    if folder.has_other_images(index):
        raise UserError(f"compare: {run.id}: {folder.describe_other_images(index)}; put them back")
    return protocol_test(builder.config.protocol.splits, index)
