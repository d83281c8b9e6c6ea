import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dml.config.check import check
from dml.core.installation import CONFIGS
from dml.config.identity import digest
from dml.config.schema import Config
from dml.core.errors import ConfigError


def _compose(*overrides):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", overrides=list(overrides))


def test_the_record_of_a_network_becomes_its_options():
    cfg = _compose("backbone=timm", "backbone.model=convnext_tiny.fb_in22k_ft_in1k_384")
    config = check(cfg, Config)
    record = {
        "name": "convnext_tiny.fb_in22k_ft_in1k_384",
        "input_size": 384,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "interpolation": "bicubic",
        "crop_share": None,  # timm squeezes whole images
    }
    assert config.backbone.items() >= record.items()
    assert config.crop_size == 384
    assert config.embedder["pooling"] == "native"


def test_a_missing_or_unknown_model_is_one_line():
    with pytest.raises(ConfigError) as error:
        check(_compose("backbone=timm"), Config)
    assert [line.partition(":")[0] for line in error.value.problems] == ["backbone.model"]
    with pytest.raises(ConfigError) as error:
        check(_compose("backbone=timm", "backbone.model=convnextt_tiny"), Config)
    assert len(error.value.problems) == 1
    assert "did you mean 'convnext_tiny'" in error.value.problems[0]


def test_a_stored_config_needs_no_record():
    cfg = _compose("backbone=timm", "backbone.model=convnext_tiny")
    stored = OmegaConf.create(OmegaConf.to_yaml(cfg, resolve=True))
    assert digest(stored) == digest(cfg)
