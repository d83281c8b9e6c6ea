"""What `evaluate.py` does: pick a network, embed the test images, tell and keep the scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dml import build
from dml.config import Config, EvaluateConfig
from dml.durable import write_json
from dml.evaluation import Evaluator
from dml.loading import load_config, load_embedder
from dml.protocols import published_test
from dml.reporting.terminal import console, scores_table
from dml.run_folder import RunFolder
from dml.training.trainer import autocast


def score(config: EvaluateConfig) -> dict[str, Any]:
    """Scores a run's best network, or a backbone as it comes, on the test images.

    Returns:
        What is also written to `evaluation.json`: in the run folder, or under
        `outputs/evaluations/` for a network without a run.
    """
    device = build.resolve_device(config.device)
    if config.run is None:
        trained: Config = config
        embedder = build.build_embedder(config)
        name = f"{config.data.name}-{config.backbone['name']}"
        target = Path(config.outputs) / "evaluations" / name / "evaluation.json"
    else:
        folder = RunFolder(config.run)
        trained = load_config(folder.path)
        trained.data.root = config.data.root
        if "root" in trained.data.reader:
            trained.data.reader["root"] = config.data.root
        embedder = load_embedder(trained, folder, "repeat0-fold0")
        name = f"{trained.loss['name']} on {trained.data.name}"
        target = folder.path / "evaluation.json"
    index = build.build_index(trained)
    embedder.to(device)
    transforms = build.build_transforms(trained, embedder)
    evaluator = Evaluator(
        published_test(index),
        transforms.test,
        transforms.to_input,
        batch_size=config.data.eval_batch_size,
        workers=config.data.workers,
        device=device,
        source=build.open_source(trained, index, device),
    )
    with autocast(config.precision, device):
        metrics = evaluator(embedder)
    result = {
        "name": name,
        "data": index.name,
        "stand_in": index.stand_in,
        "backbone": trained.backbone["name"],
        "run": config.run,
        "embedding_size": embedder.embedding_size,
        "metrics": metrics,
    }
    write_json(target, result)
    console.print(scores_table(result))
    console.print(f"scores  {target}")
    return result
