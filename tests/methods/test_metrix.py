"""Metrix and its comparisons as runs: configs, refused losses, mixed precision."""

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

CONFIGS = Path(__file__).parents[2] / "configs"


METHODS = ["metrix", "imix", "mochi", "proxy_synthesis"]


FEW = ("data.batch_size=60", "protocol.steps_per_epoch=2", "protocol.epochs=2")


@pytest.mark.parametrize("name", METHODS)
def test_every_constructor_argument_is_listed_with_its_default(name):
    node = OmegaConf.to_container(OmegaConf.load(CONFIGS / "method" / f"{name}.yaml"))
    node = node.get("method", node)
    parameters = inspect.signature(get_class(node["_target_"])).parameters
    assert set(node) - {"name", "_target_", "result_id"} == set(parameters) - {"loss", "miner"}
    assert node["name"] == name
    for key, parameter in parameters.items():
        if key in ("loss", "miner", "hard_negatives") and parameter.default is None:
            continue
        if key != "loss":
            default = parameter.default
            assert node[key] == (list(default) if isinstance(default, tuple) else default)


@pytest.mark.parametrize(
    "words",
    [
        ["loss=contrastive", "method=metrix", "method.types=[input,feature,embed]"],
        ["loss=ms_miner", "method=metrix", "method.types=[embed]"],
        ["loss=proxy_nca_pp", "method=metrix", "method.types=[embed,feature]", "precision=bf16"],
        ["loss=ms", "method=imix"],
        ["loss=contrastive", "method=mochi", "precision=bf16"],
        ["loss=proxy_anchor", "method=proxy_synthesis"],
    ],
)
def test_trains(run_tiny, words):
    summary, _ = run_tiny(*words, *FEW)
    assert summary["metrics"]["map_at_r"]["mean"] > 0
