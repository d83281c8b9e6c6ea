import pytest
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.identity import flatten
from dml.core.errors import ConfigError


def problems(cfg):
    with pytest.raises(ConfigError) as caught:
        check(cfg)
    return caught.value.problems


def test_the_default_config_is_valid_and_typed(changed):
    config = check(changed("name=2024"))
    assert config.name == "2024"  # numbers are texts where an option is a text
    assert config.data.batch_size == 128
    assert config.protocol.stopping.patience == 5
    assert isinstance(config.optim.loss_lr_ratio, float)


def test_all_problems_at_once(changed):
    words = "data.batch_size=abc seed=-1 optim.lr=nan data.sampler=rando +data.batch-size=3"
    found = problems(changed(*words.split()))
    names = sorted(line.split(":")[0] for line in found)
    assert names == ["data.batch-size", "data.batch_size", "data.sampler", "optim.lr", "seed"]
    assert "did you mean 'random'?" in "\n".join(found)
    assert "did you mean 'data.batch_size'?" in "\n".join(found)


@pytest.mark.parametrize(
    ("override", "message"),
    [  # one of each class of error
        ("seed=-1", "seed: -1 must be greater than or equal to 0"),
        ("note='caf\udce9'", "note: caf\\udce9 is not UTF-8; rename it, or set PYTHONUTF8=1"),
        ("seed=3.0", "seed: 3.0 must be a valid integer"),
        ("seed=${foo}", "seed: Interpolation key 'foo' not found"),
        ("optim.lr=inf", "optim.lr: Infinity must be a finite number"),
        ("transform.flip=1", "transform.flip: 1 must be a valid boolean"),
        (r"note='\${b}'", "note: contains ${, which a stored config cannot"),
        ("outputs=true", "outputs: true must be text"),
        ("data.background=whit", "data.background: 'whit' is no color; use white, black"),
        ("data.background='#00000080'", "data.background: '#00000080' is no color"),
        ("data.background=0", "data.background: 0 is no color"),
        ("+backbone.input_size=0", "backbone.input_size: 0 must be between 1 and 16384"),
        ("data.eval_batch_size=9223372036854775808", "data.eval_batch_size: 92233"),
        ("data=3", "data: 3 must be a node of options"),
        ("transform.scale=[0.5,x]", "transform.scale[1]: 'x' must be a valid number"),
        ("data.workers=5000", "data.workers: 5000 must be 'auto' or less than or equal to 1024"),
        ("optim.schedule=cosin", "optim.schedule: 'cosin' must be 'cosine' or 'step' or a node of "
         "options; did you mean 'cosine'?"),
        ("loss.name=../../x", "loss.name: '../../x' is part of the run folder's name"),
        ("~loss.batch_kind", "loss.batch_kind: missing; give it a value"),
        ("protocol.select_metric=map_at_R",
         "protocol.select_metric: 'map_at_R' must be one of map_at_r | "),
    ],
)  # fmt: skip
def test_invalid_value(changed, override, message):
    assert problems(changed(override))[0].startswith(message)


def test_absent_gpu(changed, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (problem,) = problems(changed("device=cuda"))
    assert problem == "device: 'cuda' needs a GPU, and this machine has none; use cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check(changed("device=cuda:1"))
    (problem,) = problems(changed("device=cuda:2"))
    assert problem.startswith("device: 'cuda:2'")
    assert "cuda:1" in problem


COMMANDS = (
    ("data=digits",),
    ("data=cub", "data.classes=20"),
    ("data=cub", "data.images_per_class_at_most=8"),
    ("data=folder", "data.root=/images"),
    ("data=features", "data.root=/images/x.npz"),
    ("data=digits", "protocol=validation", "search=bayes", "optim.schedule=cosine"),
    ("data=cub", "speed=fast", "precision=bf16", "channels_last=true", "backbone=vit_s16"),
    ("data=inshop", "protocol=mlrc", "loss=ms", "method=metrix", "data.query_gallery=none"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_checked_config_has_the_values_that_are_stored(composed, words):
    cfg = composed(*words)
    checked = flatten(check(cfg).model_dump(by_alias=True))
    stored = flatten(OmegaConf.to_container(cfg, resolve=True))
    assert {name: checked[name] for name in stored} == stored


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("data=digits",), True),
        (("data=cub",), False),
        (("data=cub", "data.classes=20"), True),
        (("data=cub", "data.images_per_class_at_most=8"), True),
    ],
)
def test_a_part_of_a_dataset_stands_in_for_it(composed, words, expected):
    assert check(composed(*words)).data.stands_in is expected
