"""Every loss file is complete, builds a loss that trains, and has a search space."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from dml.config.search_space import merge_spaces
from dml.config.signatures import accepted_parameters

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = sorted({path.stem for path in (CONFIGS / "loss").glob("*.yaml")} - {"custom"})
RESULT_IDS = {
    "mfcont": "mf_contrastive",
    "mfcwms": "mf_cwms",
    "mfnca": "mf_nca",
    "cbcont": "class_balanced_contrastive",
}
RESERVED = {"name", "result_id", "batch_kind", "miner", "_target_"}
FROM_BUILDER = {"num_classes": 7, "embedding_size": 16}
# PML's own subclasses fix this argument and raise if it is passed again
FIXED_BY_PML = {"mat_based_loss"}


def load(name: str) -> DictConfig:
    config = OmegaConf.load(CONFIGS / "loss" / f"{name}.yaml")
    assert isinstance(config, DictConfig)
    return config


def constructor_arguments(cls: type) -> set[str]:
    return accepted_parameters(cls).keys() - FIXED_BY_PML


def build(config: DictConfig) -> torch.nn.Module:
    """As the experiment does: listed arguments win over those of the builder."""
    arguments = OmegaConf.to_container(config.loss, resolve=True)
    assert isinstance(arguments, dict)
    arguments = {k: v for k, v in arguments.items() if k == "_target_" or k not in RESERVED}
    takes = constructor_arguments(get_class(config.loss._target_))
    given = {k: v for k, v in FROM_BUILDER.items() if k in takes and k not in arguments}
    loss = instantiate(arguments, **given)
    assert isinstance(loss, torch.nn.Module)
    return loss


@pytest.mark.parametrize("name", NAMES)
def test_file_names_its_ids(name: str) -> None:
    config = load(name)
    assert {"loss"} <= set(config) <= {"loss", "optim", "space"}
    assert config.loss.name == name
    assert config.loss.result_id == RESULT_IDS.get(name, name)
    assert config.loss.batch_kind in ("pair", "classification")


@pytest.mark.parametrize("name", NAMES)
def test_every_constructor_argument_is_listed(name: str) -> None:
    config = load(name)
    listed = {str(key) for key in config.loss} - RESERVED
    arguments = constructor_arguments(get_class(config.loss._target_))
    assert listed - arguments == set()
    assert arguments - listed <= set(FROM_BUILDER)
    nodes = [config.loss[key] for key in (*listed, "miner") if key in config.loss]
    for node in nodes:
        if isinstance(node, DictConfig):
            assert set(node) - {"_target_"} == constructor_arguments(get_class(node._target_))


@pytest.mark.parametrize("name", NAMES)
def test_builds_and_trains(name: str) -> None:
    torch.manual_seed(0)
    config = load(name)
    loss = build(config)
    x = torch.randn(12, 16, requires_grad=True)
    y = torch.arange(12) % 6
    tuples = None
    if "miner" in config.loss:
        tuples = instantiate(config.loss.miner)(x, y)
    value = loss(x, y, tuples)
    value.backward()
    assert value.ndim == 0
    assert value.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() > 0
    parameters = list(loss.parameters())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in parameters)
    assert ("optim" in config) == bool(parameters)
    assert not parameters or config.optim.loss_lr_ratio is not None


@pytest.mark.parametrize("name", NAMES)
def test_search_space_holds_real_options(name: str) -> None:
    config = load(name)
    space = load_space(config)
    assert space or name in ("n_pair", "nca")
    assert ("optim.loss_lr" in space) == ("optim" in config)
    for key, spec in space.items():
        assert key == "optim.loss_lr" or is_number(OmegaConf.select(config, key)), key
        assert set(spec) - {"log", "int"} == {"low", "high"}
        assert spec["low"] < spec["high"]
        assert spec["low"] > 0 or not spec.get("log", False)


def load_space(config: DictConfig) -> dict[str, Any]:
    """Returns dotted option → range of a loss file."""
    node: Any = OmegaConf.to_container(config.get("space", OmegaConf.create({})))
    return merge_spaces(node)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@pytest.mark.parametrize("corner", ["low", "high"])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "snr"])  # divides by an image's variance
def test_losses_are_finite_at_the_corners_of_their_space(name: str, corner: str) -> None:
    config = load(name)
    for key, spec in load_space(config).items():
        if key != "optim.loss_lr":
            OmegaConf.update(config, str(key), spec[corner])
    torch.manual_seed(0)
    loss = build(config)
    x = torch.randn(12, 16)
    x[1], x[2] = x[0], 0
    x.requires_grad_()
    value = loss(x, torch.arange(12) % 6)
    value.backward()
    assert value.isfinite()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_mlrc_table_sets_options_within_the_search_space() -> None:
    table = OmegaConf.to_container(OmegaConf.load(CONFIGS / "params" / "mlrc.yaml"))
    assert isinstance(table, dict)
    assert set(table) < set(NAMES)
    for name, datasets in table.items():
        space = load_space(load(name))
        assert set(datasets) == {"cub", "cars", "sop"}
        for options in datasets.values():
            for key, value in options.items():
                assert space[key]["low"] <= value <= space[key]["high"], (name, key)
        assert set(datasets["cub"]) == set(space)
