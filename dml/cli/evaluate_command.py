"""Command that evaluates a run or a pretrained network: `evaluate.py`, `dml-evaluate`."""

from __future__ import annotations

from typing import Any

from dml.cli.hydra_command import command
from dml.cli.train_command import keep_memory


def evaluate(cfg: Any) -> tuple[None, None]:
    """Runs the evaluation of a composed config; it has neither a score nor a value."""
    from dml.config.check import check
    from dml.config.schema import EvaluateConfig

    config = check(cfg, EvaluateConfig)
    if config.run is not None:
        from dml.runs.folder.run_folder import load_cfg

        load_cfg(config.run, config.trust)
    elif config.embeddings is None:
        from dml.data.sources import require_folder

        require_folder(config.data.name, config.data.reader.get("root", config.data.root))
    # What is wrong above is reported before torch is loaded, which takes seconds.
    from hydra.core.hydra_config import HydraConfig

    from dml.runs.evaluate import evaluate

    keep_memory(config)
    overrides = HydraConfig.get().overrides.task
    evaluate(config, {word.partition("=")[0].lstrip("+~") for word in overrides})
    return None, None


def main() -> int:
    """Runs the command in `sys.argv` and returns its exit status."""
    return command(evaluate, "evaluate")
