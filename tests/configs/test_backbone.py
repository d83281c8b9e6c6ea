import inspect
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from dml.config.schema import Lora
from dml.models.embedder import Embedder

CONFIGS = Path(__file__).parents[2] / "configs"
CUSTOM = CONFIGS / "backbone" / "custom.yaml"  # the arguments are those of the user's class
BACKBONES = sorted({*(CONFIGS / "backbone").glob("*.yaml")} - {CUSTOM})
# Options of backbone=timm that the networks of the papers leave at their defaults.
RECORDED = {"mean", "std", "interpolation", "crop_share"}


def _parameters(target):
    return {
        name: parameter.default for name, parameter in inspect.signature(target).parameters.items()
    }


@pytest.mark.parametrize("path", BACKBONES, ids=lambda path: path.stem)
def test_a_backbone_file_lists_every_argument(path):
    config = OmegaConf.to_container(OmegaConf.load(path))
    parameters = _parameters(get_class(config.pop("_target_")))
    assert config.pop("name") == ("${.model}" if path.stem == "timm" else path.stem)
    config.pop("pooling", None)  # default of embedder.pooling
    assert config.pop("train", "all") == "all"
    assert Lora(**config.pop("lora", {})) == Lora()
    of_the_papers = RECORDED if "model" in config and path.stem != "timm" else set()
    assert set(config) == set(parameters) - of_the_papers


def test_the_node_of_the_embedder_lists_every_argument_with_its_default():
    config = OmegaConf.to_container(OmegaConf.load(CONFIGS / "train.yaml").embedder)
    parameters = _parameters(Embedder)
    del parameters["backbone"], config["size"], parameters["size"]  # a protocol sets the size
    config["pooling"] = config["pooling"].removeprefix("${oc.select:backbone.pooling,").rstrip("}")
    assert config == parameters
