import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError


def problems(cfg):
    with pytest.raises(ConfigError) as caught:
        check(cfg, Config)
    return caught.value.problems


def test_the_default_config_is_valid_and_typed(changed):
    config = check(changed(), Config)
    assert config.data.batch_size == 128
    assert config.protocol.stopping.patience == 5
    assert isinstance(config.optim.loss_lr_ratio, float)


def test_all_problems_at_once(changed):
    found = problems(
        changed(
            "data.batch_size=abc",
            "seed=-1",
            "optim.lr=nan",
            "data.sampler=rando",
            "protocol.stopping.unit=weeks",
            "+data.batchsize=3",
            "device=gpu",
        )
    )
    assert sorted(line.split(":")[0] for line in found) == [
        "data.batch_size",
        "data.batchsize",
        "data.sampler",
        "device",
        "optim.lr",
        "protocol.stopping.unit",
        "seed",
    ]
    assert "did you mean 'random'?" in "\n".join(found)
    assert "did you mean 'data.batch_size'?" in "\n".join(found)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=null", "seed: null must be a whole number"),
        ("data.batch_size=abc", "data.batch_size: 'abc' must be a whole number"),
        ("max_minutes=abc", "max_minutes: 'abc' must be a number or null"),
        ("data=3", "data: 3 must be a node of options"),
        ("optim.clip_value=0", "optim.clip_value: 0 must be above 0"),
        ("seed=-1", "seed: -1 must be at least 0"),
        ("data.workers=5000", "data.workers: 5000 must be auto or a whole number from 0 to 1024"),
        ("data.label_noise=1", "data.label_noise: 1 must be below 1"),
        ("optim.lr=inf", "optim.lr: inf must be a finite number"),
        ("data.cache=big", "data.cache: 'big' must be null, full or a number of pixels"),
        ("data.cache=0", "data.cache: 0 must be null, full or a number of pixels"),
        ("transform.scale=[0.5,x]", "transform.scale[1]: 'x' must be a number"),
        ("outputs=true", "outputs: true must be text"),
        ("evaluation.measures=[w2,w3]", "evaluation.measures[1]: 'w3' is not valid; one of"),
        ("overwrite=maybe", "overwrite: 'maybe' must be true or false"),
        ("optim.args=null", "optim.args: null must be a node of options"),
        ("transform.scale=3", "transform.scale: 3 must be a list of numbers"),
        ("seed=${foo}", "seed: '${foo}' cannot be resolved: Interpolation key 'foo' not "),
        ("loss.name=null", "loss.name: null must be text"),
        ("loss.name=[a]", "loss.name: ['a'] must be text"),
        ("loss.name=../../x", "loss.name: '../../x' is part of the run folder's name"),
        ("data.name=..", "data.name: '..' is part of the run folder's name"),
        ("experiment.id=a/b", "experiment.id: 'a/b' is part of the run folder's name"),
        ("~loss.batch_kind", "loss.batch_kind: missing; give it a value"),
        ("~method._target_", "method._target_: missing; give it a value"),
        (
            "outputs=/dev/null/x",
            "outputs: cannot be created below /dev/null, which is not a folder",
        ),
        ("+optim.groups.head=3", "optim.groups.head: 3 must be a node of options"),
        ("seed='3'", "seed: '3' must be a whole number"),
        ("seed=3.0", "seed: 3.0 must be a whole number"),
        ("optim.lr=true", "optim.lr: true must be a number"),
        ("transform.flip=1", "transform.flip: 1 must be true or false"),
        ("compile=2", "compile: 2 is not valid; one of true | false | reduce-overhead"),
        ("data.cache=true", "data.cache: true must be null, full or a number of pixels"),
    ],
)
def test_invalid_value(changed, override, message):
    assert problems(changed(override))[0].startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trials=0", "search.trials: 0 must be at least 1"),
        ("startup=0", "search.startup: 0 must be at least 1"),
        ("lease_seconds=0", "search.lease_seconds: 0 must be at least 1"),
        (
            "sampler=gpp",
            "search.sampler: 'gpp' is not valid; did you mean 'gp'?; one of gp | tpe | grid",
        ),
    ],
)
def test_invalid_search(composed, override, message):
    assert problems(composed("search=bayes", "protocol=mlrc", f"search.{override}")) == [message]


CHOICES = "+space.own.loss.pos_margin={choices:[0,0.2]}"


def test_a_grid_has_as_many_trials_as_combinations(composed):
    cfg = composed(
        "search=grid",
        "protocol=mlrc",
        "loss=contrastive",
        CHOICES,
        "+space.own.loss.neg_margin=null",
    )
    assert cfg.search.trials == 2
    cfg.search.trials = 3
    assert problems(cfg) == ["search.trials: 3 is above the 2 combinations of the choices"]


def test_a_grid_takes_choices_only(composed):
    (problem,) = problems(composed("search=grid", "protocol=mlrc", "loss=contrastive", CHOICES))
    assert problem.startswith("space of loss.neg_margin: search=grid tries choices")
    assert problem.endswith("or leave it out with '+space.own.loss.neg_margin=null'")


def test_absent_gpu(changed, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert problems(changed("device=cuda")) == [
        "device: 'cuda' needs a GPU, and this machine has none; use cpu"
    ]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check(changed("device=cuda:1"), Config)
    assert problems(changed("device=cuda:2")) == [
        "device: 'cuda:2' does not exist; the last of 2 is cuda:1"
    ]


def test_numbers_are_texts_of_options_that_are_texts(changed):
    config = check(changed("name=2024", "optim.lr=1"), Config)
    assert (config.name, config.optim.lr) == ("2024", 1.0)


@pytest.mark.parametrize("scale", ["[1]", "[-1,1]", "[0.5,nan]", "[2,1]", "[0.1,0.2,0.3]"])
def test_an_interval_is_two_numbers(changed, scale):
    (problem,) = problems(changed(f"transform.scale={scale}"))
    assert problem.startswith("transform.scale: ")


def test_the_selection_metric_must_exist(changed):
    (problem,) = problems(changed("protocol.select_metric=map_at_R"))
    assert problem.startswith("protocol.select_metric: 'map_at_R' is not valid; one of map_at_r | ")
