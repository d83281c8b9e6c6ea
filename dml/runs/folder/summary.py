"""The content of `summary.json`: scores, and the settings and machine behind them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from hydra.utils import get_class

from dml.config.schema import Config
from dml.core.installation import CLONE
from dml.runs.context import RunContext
from dml.runs.jobs.job_list import Job, combine_scores
from dml.training.device import peak_memory_mb


def summarize(
    context: RunContext,
    jobs: Sequence[Job],
    results: list[dict[str, Any]],
    ensembles: list[dict[str, Any]] | None,
    seconds: float,
) -> dict[str, Any]:
    """Returns the content of `summary.json`.

    Args:
        context: config and device of the run.
        jobs: its models.
        results: of the jobs (`JobRun.run`).
        ensembles: per repeat the scores of its concatenated models; None for one model a repeat.
        seconds: wall time of this process.
    """
    config, device = context.config, context.device
    p, tested = config.protocol, jobs[0].test.query
    return {
        "name": config.name,
        "note": config.note,
        "result_id": result_id(config),
        "data": config.data.name,
        "stand_in": tested.index.stand_in,
        "skipped_images": tested.index.skipped,
        "protocol": protocol_id(config),
        "evaluation": "single" if ensembles is None else "separated",
        "selected_on": p.selected_on,
        "selected_by": f"{p.select_metric} on {p.selected_on}",
        "backbone": config.backbone["name"],
        "loss": config.loss["name"],
        "method": config.method["name"],
        "seed": config.seed,
        "classes_tested": f"{len(tested)} images of {tested.num_classes} unseen classes",
        "embedding_size": results[-1]["embedding_size"],
        "metrics": combine_scores(results),
        "concatenated": None if ensembles is None else _summarize_ensembles(ensembles),
        "validation": combine_scores([{**r, "metrics": r["validation"]} for r in results]),
        "untrained": combine_scores([{**r, "metrics": r["untrained"]} for r in results]),
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


def _summarize_ensembles(ensembles: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "embedding_size": ensembles[-1]["embedding_size"],
        "metrics": combine_scores(ensembles),
        "repeats": ensembles,
    }


def result_id(config: Config) -> str:
    """Returns the id of loss and method in the tables of published results.

    It is given in the file of the method (`result_id`), or by its class if it depends on options.
    """
    if "result_id" in config.method:
        return config.method["result_id"]
    loss_id, method = config.loss["result_id"], get_class(config.method["_target_"])
    if hasattr(method, "result_id"):
        return method.result_id(loss_id, config.method)
    return loss_id if config.method["name"] == "plain" else f"{loss_id}+{config.method['name']}"


def protocol_id(config: Config) -> str:
    """Returns the id of the protocol in the tables of published results, with its label noise."""
    clean, noise = config.protocol.result_id, config.data.label_noise
    return clean if not noise else f"{clean.removesuffix('_standard')}_noise{100 * noise:g}"


def device_name(device: torch.device) -> str:
    """Returns the name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()}, {torch.get_num_threads()} threads)"


def versions() -> dict[str, str]:
    """Returns the versions of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for package in ("dml-benchmark", "torch", "torchvision", "timm", "pytorch-metric-learning"):
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "not installed"
    return installed


def git_revision() -> str | None:
    """Returns the commit of this code, with `+` if it was changed since; None if git fails.

    An installed package has no commit, even if its environment lies in a repository: its version
    is returned.
    """
    if CLONE is None:
        return f"version {version('dml-benchmark')}"
    command = ["git", "-C", str(CLONE), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
