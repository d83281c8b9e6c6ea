"""Fixtures of the tests of runs."""

import pytest
from hydra import compose, initialize_config_dir

from dml.cli import CONFIGS
from dml.config.check import check
from dml.config.schema import EvaluateConfig
from dml.runs.evaluate import evaluate as evaluate_config


@pytest.fixture
def evaluated(tmp_path):
    """Evaluates with overrides, as the command line would."""

    def evaluate(*overrides, given=()):
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose("evaluate", overrides=[f"outputs={tmp_path}", "device=cpu", *overrides])
        return evaluate_config(check(cfg, EvaluateConfig), given)

    return evaluate
