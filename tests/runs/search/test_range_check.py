"""Values of a search that no trial can have are named before the first trial."""

import pytest

from dml.config.check import check
from dml.config.search_space import merge_spaces
from dml.core.errors import ConfigError
from dml.runs.search.proposals import create_distributions
from dml.runs.search.range_check import check_ranges

SEARCH = ("data=digits", "protocol=validation", "loss=contrastive", "space.loss=null")


@pytest.fixture
def checked(composed):
    """Returns the notes on the ranges of a search."""

    def run(*words):
        sampler = [] if any(word.startswith("search=") for word in words) else ["search=bayes"]
        config = check(composed(*SEARCH, *sampler, *words))
        ranges = merge_spaces(config.space, config.search.sampler == "grid")
        return check_ranges(config, create_distributions(ranges))

    return run


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["search=grid", "+space.optim.lr={choices:[1e-3,abc]}"], "optim.lr: trials with abc fail"),
        (["+space.ema={low:0.5,high:1.5}"], "ema: trials with 1.5 fail: ema: 1.5 must be less"),
        (["+space.optim.lr={low:-1,high:-0.5}"], "optim.lr: trials with -0.8"),
        (["+space.data.batch_size={low:8,high:63,int:true}"], "data.batch_size: trials with 63 "),
        (
            ["+space.transform.scale={choices:[[0.1,1.0],[-0.5,1.0]]}"],
            "transform.scale: trials with [-0.5, 1.0] fail",
        ),
    ],
)
def test_values_that_are_refused_have_a_note(checked, words, note):
    (line,) = checked(*words)
    assert line.startswith(f"space.{note}")


@pytest.mark.parametrize(
    "words",
    [
        ["+space.optim.lr={low:1e-5,high:1e-2,log:true}"],
        ["+space.embedder.size={low:16,high:64,int:true}"],
        ["+space.loss.pos_margin={low:-1,high:2}", "+space.ema={low:0.5,high:0.99}"],
        ["+space.data.batch_size={low:8,high:64,int:true,step:4}"],
        ["search=grid", "+space.embedder.pooling={choices:[avg,max]}"],
        ["search=grid", "+space.optim.weight_decay={choices:[0,1e-4]}"],
    ],
)
def test_ranges_that_can_be_tried_have_none(checked, words):
    assert checked(*words) == []


@pytest.mark.parametrize("step", ["", ",step:16"])
@pytest.mark.parametrize("option", ["embedder.size", "optim.warmup_steps", "data.batch_size"])
def test_real_numbers_of_an_integer_are_refused(checked, option, step):
    with pytest.raises(ConfigError, match=rf"space\.{option}: .*integers only; add int: true"):
        checked(f"+space.{option}={{low:16,high:64{step}}}")
