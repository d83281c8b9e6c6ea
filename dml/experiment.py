"""One run, from its config to `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dml import build, protocols
from dml.config import Config, check, identity, notes
from dml.data.base import ImageIndex
from dml.ensemble import concatenated
from dml.job import EMBEDDINGS
from dml.jobs import Shared, train_all
from dml.loading import load_cfg
from dml.protocols import Job
from dml.reporting.figures import learning_curve
from dml.reporting.terminal import console, results_table
from dml.run_folder import RunFolder
from dml.summary import summarize
from dml.tracking import History
from dml.training.interrupts import StopRequest


def run(cfg: DictConfig, config: Config) -> dict[str, Any]:
    """Trains, evaluates and reports; a finished run is left alone, an unfinished one continued.

    Args:
        cfg: as Hydra composed it.
        config: the same, checked (`dml.config.check`).

    Returns:
        The summary, which is also in the run folder.

    Raises:
        UserError: what the user can mend.
        RunStopped: the run was asked to stop; its state is saved.
    """
    return _run_in(RunFolder.of(cfg, config), cfg, config)


def resume(path: str | Path) -> dict[str, Any]:
    """Continues the run in a folder from the config that is stored there.

    Raises:
        UserError: the folder holds no run; see also `run`.
    """
    cfg = load_cfg(path)
    return _run_in(RunFolder(path), cfg, check(cfg, Config))


def _run_in(folder: RunFolder, cfg: DictConfig, config: Config) -> dict[str, Any]:
    summary = None if config.overwrite else folder.read_summary()
    if summary is not None:
        console.print("finished before; overwrite=true runs it anew")
    else:
        index = build.build_index(config)  # before the folder: absent data leaves no trace
        with folder.locked(), StopRequest(config.max_minutes) as stop:
            if config.overwrite:
                folder.clear()
            elif folder.summary.exists():  # finished by another process in the meantime
                return _run_in(folder, cfg, config)
            folder.write_config(cfg)
            for note in notes(config):
                console.print(f"note: {note}")
            summary = _train(cfg, config, folder, index, stop)
    console.print(results_table(summary))
    for picture in sorted(folder.figures.glob("*.png")):
        console.print(f"picture     {picture}")
    console.print(f"run folder  {folder.path}")
    return summary


def _train(
    cfg: DictConfig, config: Config, folder: RunFolder, index: ImageIndex, stop: StopRequest
) -> dict[str, Any]:
    """All models of the run, the pictures, and last of all the summary."""
    started = time.monotonic()
    shared = Shared.of(config, identity(cfg), index)
    p = config.protocol
    jobs = protocols.jobs(p.splits, p.repeats, index, config.data.label_noise, config.seed)
    tracker = build.instantiate(config.tracking, "tracking", run_id=folder.run_id())
    try:
        results = train_all(shared, jobs, folder, tracker, stop)
    finally:
        tracker.finish()
    joined = _concatenated(shared, jobs, folder)
    _draw(shared, jobs, folder)
    seconds = time.monotonic() - started
    tested = jobs[0].test.query
    summary = summarize(config, results, joined, tested, shared.device, seconds)
    folder.write_summary(summary)
    return summary


def _concatenated(
    shared: Shared, jobs: Sequence[Job], folder: RunFolder
) -> list[dict[str, Any]] | None:
    """Per repeat the scores of its models joined into one; None where it has only one."""
    if protocols.FOLDS[shared.config.protocol.splits] == 1:
        return None
    found = []
    for folds in protocols.by_repeat(jobs):
        files = [folder.job(job.name) / EMBEDDINGS for job in folds]
        normalize = shared.config.embedder["normalize"]
        embedded = concatenated(files, normalize, shared.device)
        metrics = embedded.score(folds[0].test.query.index.recall_at)
        size = embedded.query.shape[1]
        found.append({"repeat": folds[0].repeat, "metrics": metrics, "embedding_size": size})
    return found


def _draw(shared: Shared, jobs: Sequence[Job], folder: RunFolder) -> None:
    """The learning curves, and what the first model retrieves."""
    config = shared.config
    name = f"{config.loss['name']} on {config.data.name}"
    history = History(folder.history)
    learning_curve(
        [history.of(job.repeat, job.fold) for job in jobs],
        config.protocol.select_metric,
        f"{name}, protocol {config.protocol.name}",
        folder.figures / "learning_curve.png",
    )
    first = shared.job_run(jobs[0], folder)
    first.load_best()
    first.draw_neighbors(name, folder.figures / "neighbors.png")
