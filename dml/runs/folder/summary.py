"""The content of `summary.json`: scores, and the settings and machine behind them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dml.config.identity import protocol_id, result_id
from dml.config.schema import Config
from dml.core.installation import CLONE
from dml.core.statistics import Estimate, mean_per_repeat
from dml.data.image_index import Subset
from dml.training.device import peak_memory_mb

PACKAGES = ("dml-benchmark", "torch", "torchvision", "timm", "pytorch-metric-learning", "numpy",
            "scipy", "pillow", "optuna", "scikit-learn", "faiss-cpu", "faiss-gpu")  # fmt: skip


def summarize(
    config: Config,
    tested: Subset,
    results: Sequence[dict[str, Any]],
    ensembles: list[dict[str, Any]] | None,
    device: torch.device,
) -> dict[str, Any]:
    """Returns the content of `summary.json`.

    Args:
        config: of the run.
        tested: the test images, or the queries among them.
        results: of the models (`JobRun.run`).
        ensembles: per repeat the scores of its concatenated models; None for one model a repeat.
        device: of the networks.
    """
    p = config.protocol
    concatenated = None
    if ensembles is not None:
        size, scores = ensembles[-1]["embedding_size"], combine_scores(ensembles)
        concatenated = {"embedding_size": size, "metrics": scores, "repeats": ensembles}
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
        "concatenated": concatenated,
        "validation": combine_scores(results, "validation"),
        "untrained": combine_scores(results, "untrained"),
        "best_epoch": [result["best_epoch"] for result in results],
        "jobs": results,
        "device": device_name(device),
        "precision": config.precision,
        "images_per_second": round(fmean(r["images_per_second"] for r in results), 1),
        "peak_memory_mb": round(peak_memory_mb(device), 1),
        "versions": versions(),
        "git_revision": git_revision(),
    }


def combine_scores(
    results: Sequence[dict[str, Any]], key: str = "metrics"
) -> dict[str, dict[str, Any]]:
    """Returns means over the folds of each repeat, then mean and 95 % t-interval over repeats.

    Args:
        results: per job `repeat` and scores.
        key: of the scores.

    Returns:
        Per metric `mean`, `ci95` (half-width) and `std` (both None for one repeat), and `repeats`.
    """
    combined = {}
    for name in results[0][key]:
        scores = mean_per_repeat((result["repeat"], result[key][name]) for result in results)
        mean = Estimate(tuple(scores.values()))
        combined[name] = {"mean": mean.mean, "ci95": mean.ci95, "std": mean.std, "repeats": mean.n}
    return combined


def device_name(device: torch.device) -> str:
    """Returns the name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({_processor_name()}, {torch.get_num_threads()} threads)"


def _processor_name() -> str:
    with suppress(OSError):  # not Linux
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Returns the versions of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
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
