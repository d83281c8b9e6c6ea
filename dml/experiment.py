"""One run, from its config to `summary.json`."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from dml import build, protocols
from dml.config import Config, check, identity, notes
from dml.data.base import ImageIndex, View
from dml.job import JobRun
from dml.loading import load_cfg
from dml.reporting.figures import learning_curve
from dml.reporting.terminal import console, results_table
from dml.run_folder import RunFolder
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
    device = build.resolve_device(config.device)
    source = build.open_source(config, index, device)
    history = History(folder.history)
    tracker = build.instantiate(config.tracking, "tracking", run_id=folder.run_id())
    results = []
    jobs = protocols.jobs(config.protocol.splits, config.protocol.repeats, index)
    try:
        for job in jobs:
            job_run = JobRun(config, identity(cfg), job, folder.job(job.name), device, source)
            done = job_run.result()
            results.append(done or job_run.run(history, tracker, stop))
            if job is jobs[0] and done is None:
                name = f"{config.loss['name']} on {config.data.name}"
                job_run.draw_neighbors(name, folder.figures / "neighbors.png")
    finally:
        tracker.finish()
    name = f"{config.loss['name']} on {config.data.name}, protocol {config.protocol.name}"
    learning_curve(
        [history.of(job.repeat, job.fold) for job in jobs],
        config.protocol.select_metric,
        name,
        folder.figures / "learning_curve.png",
    )
    summary = summarize(config, results, jobs[0].test.query, device, time.monotonic() - started)
    folder.write_summary(summary)
    return summary


def summarize(
    config: Config,
    results: list[dict[str, Any]],
    tested: View,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """What a reader of results needs to know of a run.

    Args:
        config: of the run.
        results: of its jobs (`JobRun.run`).
        tested: the images that asked.
        device: it ran on.
        seconds: wall time of this process.
    """
    p = config.protocol
    return {
        "result_id": result_id(config),
        "data": config.data.name,
        "stand_in": config.data.stand_in,
        "protocol": p.result_id,
        "evaluation": "single",
        "selected_on": p.selected_on,
        "selected_by": f"{p.select_metric} on {p.selected_on}",
        "backbone": config.backbone["name"],
        "loss": config.loss["name"],
        "method": config.method["name"],
        "seed": config.seed,
        "classes_tested": f"{len(tested)} images of {tested.num_classes} unseen classes",
        "metrics": protocols.combine([{**r, "metrics": r["metrics"]} for r in results]),
        "untrained": protocols.combine([{**r, "metrics": r["untrained"]} for r in results]),
        "best_epoch": [result["best_epoch"] for result in results],
        "jobs": results,
        "device": device_name(device),
        "precision": config.precision,
        "wall_seconds": round(seconds, 2),
        "images_per_second": round(float(np.mean([r["images_per_second"] for r in results])), 1),
        "peak_memory_mb": round(peak_memory_mb(device), 1),
        "versions": versions(),
        "git_revision": git_revision(),
    }


def result_id(config: Config) -> str:
    """The method's id in the tables of printed results."""
    if "result_id" in config.method:
        return config.method["result_id"]
    own = config.loss["result_id"]
    return own if config.method["name"] == "plain" else f"{own}+{config.method['name']}"


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()}, {torch.get_num_threads()} threads)"


def peak_memory_mb(device: torch.device) -> float:
    """Most memory ever taken by this process: on the GPU, or else of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (2**20 if sys.platform == "darwin" else 2**10)


def versions() -> dict[str, str]:
    """Of everything a number may depend on."""
    found = {"python": platform.python_version()}
    for package in ("dml-benchmark", "torch", "torchvision", "timm", "pytorch-metric-learning"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def git_revision() -> str | None:
    """The commit this code is at, with `+` if it was changed since; None outside git."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
