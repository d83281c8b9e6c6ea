"""Run folders written by hand in a millisecond each: what lists and reports read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml


def write_stored_run(
    outputs: Path, score=0.5, curve=(0.1, 0.2), selected_on="test", **options: Any
) -> Path:
    """Writes a run folder and returns it.

    Args:
        outputs: parent of the run folders.
        score: MAP@R of the finished run; None: it is not finished.
        curve: MAP@R of each epoch, from 0.
        selected_on: classes that select the epoch.
        options: `loss`, `lr`, `epochs`, `seed`, `name`.
    """
    loss, seed = options.get("loss", "ms"), options.get("seed", 0)
    cfg = {
        "name": options.get("name"),
        "seed": seed,
        "experiment": {"id": "single"},
        "data": {"name": "digits", "root": "data", "identified_by": "name"},
        "protocol": {
            "name": "traditional",
            "epochs": options.get("epochs", 10),
            "select_metric": "map_at_r",
            "selected_on": selected_on,
        },
        "loss": {"name": loss, "scale": {"ms": 2.0, "triplet": 0.1}.get(loss, 1.0)},
        "method": {"name": "plain"},
        "backbone": {"name": "small_cnn"},
        "optim": {"lr": options.get("lr", 0.001)},
    }
    text = yaml.safe_dump(cfg)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    folder = outputs / "single" / f"digits-traditional-{loss}-plain" / f"seed{seed}-{digest}"
    (folder / "checkpoints" / "repeat0-fold0").mkdir(parents=True)
    (folder / "config.yaml").write_text(text)
    if curve:
        rows = [f"0,0,{epoch}.0,{10 * epoch},{value}" for epoch, value in enumerate(curve)]
        (folder / "history.csv").write_text(
            "\n".join(["repeat,fold,epoch,step,map_at_r", *rows, ""])
        )
    if score is not None:
        metrics = {"map_at_r": score, "precision_at_1": score + 0.2}
        means = {name: {"mean": value} for name, value in metrics.items()}
        job = {"repeat": 0, "metrics": metrics, "validation": metrics, "best_epoch": 1.0}
        summary = {
            "result_id": loss,
            "stand_in": True,
            "protocol": "traditional",
            "evaluation": "single",
            "selected_by": f"map_at_r on {selected_on}",
            "embedding_size": 32,
            "metrics": means,
            "jobs": [{**job, "untrained": {"map_at_r": 0.1}}],
            "config": cfg,
        }
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder
