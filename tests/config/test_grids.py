import pytest

from dml.config.grids import expand_grids
from dml.core.errors import ConfigError

GRIDS = ["loss=c1,c2 method=plain", "loss=c1,c2,ms method=ccp method.k=1,8"]


def test_without_grids_every_combination_of_the_options():
    found = expand_grids({"data": "cub,cars", "seed": 0}, None, ["loss=ms,c1"])
    assert [" ".join(job) for job in found] == [
        "data=cub seed=0 loss=ms",
        "data=cub seed=0 loss=c1",
        "data=cars seed=0 loss=ms",
        "data=cars seed=0 loss=c1",
    ]


def test_each_grid_on_its_own_with_all_options():
    found = expand_grids({"data": "cub,cars"}, GRIDS, [])
    assert len(found) == 2 * (2 + 6)
    assert found[0] == ["data=cub", "loss=c1", "method=plain"]
    assert found[-1] == ["data=cars", "loss=ms", "method=ccp", "method.k=8"]


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (["method=plain"], 2),
        (["loss=ms"], 2),
        (["loss=c1"], 3),
        (["loss=c1,ms"], 5),
        (["loss=c1", "method=ccp", "method.k=8"], 1),
    ],
)
def test_a_value_of_the_grids_selects(given, number):
    found = expand_grids({}, GRIDS, given)
    assert len(found) == number
    if len(given) > 1:
        assert found == [given]


@pytest.mark.parametrize("losses", [["arcface"], ["c1", "arcface"], ["arcface", "ms", "c2"]])
@pytest.mark.parametrize("as_params", [False, True])
def test_other_values_than_those_of_the_grids_replace_them(losses, as_params):
    """Each once, with all the rest of the grids."""
    word = ",".join(losses)
    params, typed = ({"loss": word}, []) if as_params else ({"loss": "x"}, [f"loss={word}"])
    jobs = expand_grids(params, GRIDS, typed)
    rest = [["method=plain"], ["method=ccp", "method.k=1"], ["method=ccp", "method.k=8"]]
    assert jobs == [[f"loss={loss}", *others] for loss in losses for others in rest]


def test_options_of_a_group_go_with_its_choice():
    """Those of another group, and those of a choice that stays, are kept."""
    jobs = expand_grids({"method": "xbm"}, GRIDS, ["loss=ms"])
    assert jobs == [["loss=ms", "method=xbm"]] or jobs == [["method=xbm", "loss=ms"]]
    nets = ["net=timm net.model=a,b loss=c1 loss.margin=2"]
    assert expand_grids({"net": "small"}, nets, []) == [["net=small", "loss=c1", "loss.margin=2"]]
    kept = expand_grids({}, nets, ["net=timm"])
    assert [job[1] for job in kept] == ["net.model=a", "net.model=b"]
    typed = expand_grids({}, nets, ["net=small", "net.width=3"])
    assert typed == [["net=small", "net.width=3", "loss=c1", "loss.margin=2"]]


def test_values_of_the_grids_that_no_job_combines():
    with pytest.raises(ConfigError) as caught:
        expand_grids({}, GRIDS, ["loss=ms", "method=plain"])
    assert caught.value.problems == ["method=plain: not combined with loss=ms in this experiment"]


def test_an_interval_has_no_values():
    with pytest.raises(ConfigError, match=r"optim\.lr=interval.*'\+space\.optim\.lr=") as caught:
        expand_grids({}, (), ["loss=ms", "optim.lr=interval(1e-4,1e-2)"])
    assert len(caught.value.problems) == 1


def test_lists_and_quoted_values_stay_whole():
    (job,) = expand_grids({}, ["types=[a,b] setting='k=1;pairs=x/y'"], ["+more={a: 1}"])
    assert job == ["+more={a:1}", "types=[a,b]", "setting='k=1;pairs=x/y'"]
