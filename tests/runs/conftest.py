"""Fixtures of the tests of runs."""

import pytest

from dml.runs.evaluation.evaluate import evaluate as evaluate_config
from dml.runs.load import compose_network


@pytest.fixture
def evaluated(tmp_path):
    """Evaluates with overrides, as the command line would."""

    def evaluate(*overrides, given=()):
        config = compose_network([f"outputs={tmp_path}", "device=cpu", *overrides])
        return evaluate_config(config, given)

    return evaluate
