"""Losses of the recipes that are baselines, in our form and in that of pytorch-metric-learning."""

from __future__ import annotations

from typing import Any

from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from dml.config.signatures import accepted_parameters
from dml.core.installation import CONFIGS

OURS, THEIRS = "dml.losses.baselines.", "pytorch_metric_learning.losses."
NOT_ARGUMENTS = ("name", "result_id", "batch_kind", "miner")


def list_baselines() -> list[str]:
    """Returns the names of the recipes whose loss is a baseline."""
    paths = sorted((CONFIGS / "loss").glob("*.yaml"))
    return [path.stem for path in paths if OURS in path.read_text(encoding="utf-8")]


class Baseline(nn.Module):
    """The loss of a recipe with its default options, and its miner if it has one.

    Args:
        name: of a file of `configs/loss`.
        classes: C.
        dimensions: D.
        library: the loss is that of pytorch-metric-learning.
    """

    def __init__(self, name: str, classes: int, dimensions: int, library: bool) -> None:
        super().__init__()
        config = OmegaConf.load(CONFIGS / "loss" / f"{name}.yaml")
        node: Any = OmegaConf.to_container(config, resolve=True)
        options = node["loss"]
        miner = options.get("miner")
        if library:
            options["_target_"] = options["_target_"].replace(OURS, THEIRS)
        for key in NOT_ARGUMENTS:
            options.pop(key, None)
        accepted = accepted_parameters(get_class(options["_target_"]))
        for key, value in {"num_classes": classes, "embedding_size": dimensions}.items():
            if key in accepted and key not in options:
                options[key] = value
        self.loss = instantiate(options)
        self.miner = instantiate(miner) if miner else None

    def forward(self, x_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Returns the loss of a batch."""
        mined = self.miner(x_BD, labels_B) if self.miner else None
        value: Tensor = self.loss(x_BD, labels_B, mined)
        return value
