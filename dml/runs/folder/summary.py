"""What a reader of results needs to know of a run: the content of `summary.json`."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import get_class

from dml.config.schema import Config
from dml.data.image_index import Subset
from dml.runs import protocols
from dml.training.clock import peak_memory_mb


def summarize(
    config: Config,
    results: list[dict[str, Any]],
    joined: list[dict[str, Any]] | None,
    tested: Subset,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """What a reader of results needs to know of a run.

    Args:
        config: of the run.
        results: of its jobs (`JobRun.run`).
        joined: per repeat the scores of its models as one; None for protocols with one model.
        tested: the images that asked.
        device: it ran on.
        seconds: wall time of this process.
    """
    p = config.protocol
    last = results[-1]
    return {
        "result_id": result_id(config),
        "data": tested.index.name,
        "stand_in": tested.index.stand_in,
        "skipped_images": tested.index.skipped,
        "protocol": protocol_id(config),
        "evaluation": "single" if joined is None else "separated",
        "selected_on": p.selected_on,
        "selected_by": f"{p.select_metric} on {p.selected_on}",
        "backbone": config.backbone["name"],
        "loss": config.loss["name"],
        "method": config.method["name"],
        "seed": config.seed,
        "classes_tested": f"{len(tested)} images of {tested.num_classes} unseen classes",
        "embedding_size": last["embedding_size"],
        "metrics": protocols.combine(results),
        "concatenated": None
        if joined is None
        else {
            "embedding_size": joined[-1]["embedding_size"],
            "metrics": protocols.combine(joined),
            "repeats": joined,
        },
        "validation": protocols.combine([{**r, "metrics": r["validation"]} for r in results]),
        "untrained": protocols.combine([{**r, "metrics": r["untrained"]} for r in results]),
        "best_epoch": [result["best_epoch"] for result in results],
        "jobs": results,
        "device": device_name(device),
        "precision": config.precision,
        "wall_seconds": round(seconds, 2),
        "images_per_second": round(float(np.mean([r["images_per_second"] for r in results])), 1),
        "waiting_share": round(float(np.mean([r.get("waiting_share", 0) for r in results])), 4),
        "peak_memory_mb": round(peak_memory_mb(device), 1),
        "versions": versions(),
        "git_revision": git_revision(),
    }


def result_id(config: Config) -> str:
    """The method's id in the tables of printed results.

    A method names itself in its file (`result_id`), or by its class if its options decide.
    """
    if "result_id" in config.method:
        return config.method["result_id"]
    own, method = config.loss["result_id"], get_class(config.method["_target_"])
    if hasattr(method, "result_id"):
        return method.result_id(own, config.method)
    return own if config.method["name"] == "plain" else f"{own}+{config.method['name']}"


def protocol_id(config: Config) -> str:
    """The protocol's id in the tables of printed results; label noise makes another one of it."""
    own, noise = config.protocol.result_id, config.data.label_noise
    return own if not noise else f"{own.removesuffix('_standard')}_noise{100 * noise:g}"


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()}, {torch.get_num_threads()} threads)"


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
