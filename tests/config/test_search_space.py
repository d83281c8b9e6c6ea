import pytest

from dml.config.check import check
from dml.config.search_space import merge_spaces
from dml.core.errors import ConfigError

CHOICES = "+space.loss.pos_margin={choices:[0,0.2]}"


def test_ranges_of_loss_method_and_command_line(composed):
    words = ("loss=mfcwms", "method=metrix", "+space.optim.lr={low:1e-6,high:1e-3,log:true}")
    cfg = composed(*words, "space.loss.beta.high=9", "space.loss.alpha=null")
    space = merge_spaces(check(cfg).space)
    assert [*space] == ["loss.beta", "loss.delta", "loss.lambda_mf", "method.alpha", "method.w",
                        "optim.loss_lr", "optim.lr"]  # fmt: skip
    assert space["loss.beta"] == {"low": 0.01, "high": 9}


def test_a_grid_is_of_the_options_with_choices(composed):
    cfg = composed("search=grid", "protocol=mlrc", "loss=contrastive", CHOICES)
    assert cfg.search.trials == 2
    space = check(cfg).space
    assert merge_spaces(space, grid=True) == {"loss.pos_margin": {"choices": [0, 0.2]}}


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (["protocol=traditional"], "search", "no validation data"),
        (["loss=n_pair"], "search", "'+space.optim.lr={low:1e-6"),
        (["space=3"], "space", "node of options"),
        (["search=grid"], "search", "'+space.optim.lr={choices:["),
        (["search=grid", CHOICES, "search.trials=3"], "search.trials", "2 combinations"),
        (["+space.optim.lrr={low:0,high:1}"], "space.optim.lrr", "'optim.lr'"),
        (["space.loss.pos_margin.low=3"], "space.loss.pos_margin", "low 3 is not below high 2"),
        (["space.loss.pos_margin=3"], "space.loss.pos_margin", "'3' is not a range"),
        (["+space.optim.lr={low:0,high:1,log:true}"], "space.optim.lr", "add log: false"),
        (["+space.optim.lr={low:1e-4,high:1e-2,lgo:true}"], "space.optim.lr",
         "'lgo' is no key of a range; did you mean 'log'?"),
        (["+space.optim.lr={low:1e-4,hihg:1e-2}"], "space.optim.lr", "mean 'high'"),
        (["+space.optim.lr={low:1,high:9,stepp:2}"], "space.optim.lr", "mean 'step'"),
        (["+space.optim.lr={low:1,high:9,integer:true}"], "space.optim.lr", "mean 'int'"),
        (["+space.optim.lr={choices:[1,2],lg:true}"], "space.optim.lr", "mean 'log'"),
        (["+space.optim.lr={low:1,high:9,xyz:2}"], "space.optim.lr", "keys are choices, high"),
        (["+space.loss.pos_margin.lgo=true"], "space.loss.pos_margin", "mean 'log'"),
        (["+space.optim.lr={choice:[1,2]}"], "space.optim.lr.choice", "mean 'choices'"),
        (["+space.optim.lr={low:1e-4,high:inf}"], "space.optim.lr", "must be finite"),
        (["+space.optim.lr={low:-inf,high:1}"], "space.optim.lr", "must be finite"),
        (["+space.optim.lr={low:nan,high:1}"], "space.optim.lr", "must be finite"),
        (["+space.data.batch_size={low:0.5,high:8,int:true,log:true}"], "space.data.batch_size",
         "at least 1"),
        (["+space.optim.lr={low:1,high:2,log:maybe}"], "space.optim.lr", "'maybe'"),
        (["+space.optim.lr={low:1,high:2,step:0}"], "space.optim.lr", "above 0"),
        (["+space.optim.lr={low:1,high:2,log:true,step:1}"], "space.optim.lr", "no step"),
        (["search=grid", "+space.optim.lr={choices:[1,2],lgo:true}"], "space.optim.lr", "'log'"),
        (["+space.seed={low:0,high:3,int:true}"], "space.seed", "a seed of its own"),
        (["+space.protocol.repeats={choices:[1,2]}"], "space.protocol.repeats", "one repeat"),
        (["search=grid", "+space.seed={choices:[1,2]}"], "space.seed", "a seed of its own"),
        (["+space.search.startup={low:1,high:3}"], "space.search.startup", "of the search"),
        (["+space.data.background={choices:[white,black]}"], "space.data.background", "the same"),
        (["+space.data.images_per_class_at_most={low:4,high:8,int:true}"],
         "space.data.images_per_class_at_most", "all trials have the same images"),
        (["+space.protocol.splits={choices:[mlrc,ccp]}"], "space.protocol.splits", "the same"),
        (["search=grid", CHOICES, "search.try_defaults=true"], "search.try_defaults", "a grid"),
        (["search.trials=0"], "search.trials", "equal to 1"),
        (["search.sampler=gpp"], "search.sampler", "mean 'gp'"),
    ],
)  # fmt: skip
@pytest.mark.promise(
    "guides/search.md",
    "a key of a range is misspelled: one line names the nearest one",
)
def test_an_invalid_search(composed, words, option, said):
    chosen = {word.partition("=")[0] for word in words}
    defaults = ("protocol=mlrc", "loss=contrastive", "search=bayes")
    words += [word for word in defaults if word.partition("=")[0] not in chosen]
    with pytest.raises(ConfigError) as caught:
        check(composed(*words))
    (line,) = caught.value.problems
    assert line.startswith(f"{option}: ")
    assert said in line
