"""The sweep file says what `train.py` understands, and searches what our own search does."""

import pytest
import yaml

from dml.config.check import check
from dml.config.search_space import merge_spaces
from dml.core.installation import CONFIGS


@pytest.fixture
def sweep():
    return yaml.safe_load((CONFIGS / "wandb_sweep.yaml").read_text())


def test_both_ends_of_every_range_compose(sweep, composed):
    for end in ("min", "max"):
        words = [f"{name}={p.get('value', p.get(end))}" for name, p in sweep["parameters"].items()]
        config = check(composed(*words, *sweep["command"][4:]))
        assert config.protocol.selected_on == "validation"
        assert config.tracking["name"] == "wandb"


def test_the_space_is_that_of_the_search(sweep, composed):
    loss = sweep["parameters"]["loss"]["value"]
    space = merge_spaces(check(composed(f"loss={loss}")).space)
    ranges = {
        name: {
            "low": p["min"],
            "high": p["max"],
            **({"log": True} if p["distribution"] == "log_uniform_values" else {}),
        }
        for name, p in sweep["parameters"].items()
        if "min" in p
    }
    assert ranges == space
