"""The content of `summary.json`: scores, and the settings and machine behind them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch

from dml.config.identity import protocol_id, result_id
from dml.config.schema import Config
from dml.core.installation import git_revision, versions
from dml.core.statistics import combine_scores
from dml.data.image_index import Subset
from dml.training.device import device_name, peak_memory_mb


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
