import pytest
from omegaconf import OmegaConf

from dml.config.command_line import (
    choices_for_help,
    drop_replaced_arguments,
    list_groups,
    quote_paths,
    refuse_empty,
    refuse_mixed_ranges,
    refuse_recipes,
    refuse_repeated,
    refuse_wrong_flags,
    split_flags,
)
from dml.config.explain import compose_config
from dml.core.errors import ConfigError
from dml.core.installation import CONFIGS

OPTIMIZERS = ["adam", "adamw", "rmsprop", "sgd"]
PROTOCOLS = [path.stem for path in sorted((CONFIGS / "protocol").glob("*.yaml"))]


@pytest.mark.parametrize(
    ("typed", "flags", "others"),
    [
        ("seed=0 -m loss=ms,c1", "-m", "seed=0 loss=ms,c1"),
        ("~search --config-dir here --cfg=job seed=1", "--config-dir here --cfg=job",
         "~search seed=1"),
        ("seed=1 --info seed=2 --lr", "--info", "seed=1 seed=2 --lr"),
    ],
)  # fmt: skip
def test_flags_are_found_anywhere(typed, flags, others):
    assert split_flags(typed.split()) == (flags.split(), others.split())


def test_help_lists_groups_and_choices():
    listed = [line.partition(":")[0] for line in choices_for_help().splitlines()]
    assert {"loss", "data", "protocol", "params", "search"} <= set(listed)
    assert "recipe" not in listed
    assert set(list_groups("evaluate")) == set(list_groups())


def test_a_group_is_chosen_once():
    refuse_repeated(["data=cub", "loss=ms", "data=cub", "optim.lr=1", "optim.lr=2"])
    with pytest.raises(ConfigError, match="data: chosen twice, by data=cub and data=sop"):
        refuse_repeated(["data=cub", "loss=ms", "data=sop"])


@pytest.mark.parametrize("key", ["low:1", "high:2", "log:true", "int: true", "step : 2"])
def test_a_typed_range_has_no_choices_beside_it(key):
    refuse_mixed_ranges(["+space.optim.lr={choices:[1,2]}", "+space.loss.x={low:1,high:2}"])
    with pytest.raises(ConfigError, match=r"space\.optim\.lr: choices and \w+ exclude each other"):
        refuse_mixed_ranges([f"+space.optim.lr={{choices:[1,2],{key}}}"])


@pytest.mark.parametrize("word", ["recipe=mlrc_cub", "+recipe=typo", "~recipe"])
def test_recipes_are_not_chosen(word):
    refuse_recipes(["data=cub", "note=recipe"])
    with pytest.raises(ConfigError, match=r"recipe.*: a recipe belongs to protocol and data"):
        refuse_recipes(["data=cub", word])


@pytest.mark.parametrize("word", ["outputs=", "run=''", '+data.root=""', "params=", "embeddings="])
def test_paths_are_not_empty(word):
    refuse_empty(["outputs=.", "note=", "data=cub", "run"])
    name = word.lstrip("+").partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{name}: is empty; give a path"):
        refuse_empty(["data=cub", word])


VALUES = ["größe", "产品", "a=b", "a#b", "it's", "two words", "a{b}", "a\\", "a\\'b", "(a)", "é, ü"]


@pytest.mark.parametrize(
    "option", ["data.root", "outputs", "name", "note", "loss.name", "backbone.weights"]
)
@pytest.mark.parametrize("value", VALUES)
def test_paths_and_names_are_taken_as_they_are(tmp_path, monkeypatch, option, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / value).mkdir()  # a comma is no sweep in the name of what exists
    words = ["data=folder", "backbone=resnet50", f"{option}={value}"]
    for typed in (words, quote_paths(words)):  # the second time nothing is left to quote
        assert OmegaConf.select(compose_config("train", typed), option) == value


def test_the_home_folder_and_values_that_stay(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    words = ["data.root=~/x", "outputs=~/my runs", "resume=~/run", "params=~/best.yaml"]
    assert quote_paths(words) == [
        *("data.root=/home/me/x", "outputs=/home/me/my runs"),
        *("resume=/home/me/run", "params=/home/me/best.yaml"),
    ]
    same = [
        *("data.root='a b'", "data.root=[a,b]", "outputs=${oc.env:HOME}/x", "data.root=a,b", "-m"),
        *("loss.margin=~1", "data.root=choice(a,b)", 'name="x y"', "resume=it's"),
    ]
    assert quote_paths(same) == same
    assert quote_paths(["name=~x"]) == ["name='~x'"]  # no path
    for word in ("name=null", "note=null", "data.background=black"):
        assert quote_paths([word]) == [word]
    assert quote_paths(["data.background=#808080"]) == ["data.background='#808080'"]


EXPONENTIAL = "torch.optim.lr_scheduler.ExponentialLR"
SCHEDULES = [
    (f"optim.schedule._target_={EXPONENTIAL}", "optim.schedule.gamma=0.9"),
    (f"optim.schedule._target_={EXPONENTIAL}", "+optim.schedule.gamma=0.9"),
    ("optim.schedule.gamma=0.9", f"++optim.schedule._target_={EXPONENTIAL}"),
    (f"optim.schedule={{_target_:{EXPONENTIAL},gamma:0.9}}",),
    ("optim.schedule=null", f"optim.schedule._target_={EXPONENTIAL}", "optim.schedule.gamma=0.9"),
    ("~optim.schedule.step_size", f"optim.schedule._target_={EXPONENTIAL}",
     "optim.schedule.gamma=0.9"),
]  # fmt: skip


@pytest.mark.parametrize("protocol", ["mlrc", "traditional", "conventional", "mlrc_features"])
@pytest.mark.parametrize("words", SCHEDULES)
def test_a_typed_schedule_takes_only_typed_arguments(protocol, words):
    expected = {"_target_": EXPONENTIAL, "gamma": 0.9}
    for typed in (words, drop_replaced_arguments(words)):  # the second time nothing changes
        composed = compose_config("train", [f"protocol={protocol}", *typed])
        assert composed.optim.schedule == expected


@pytest.mark.parametrize("protocol", ["mlrc", "conventional", "mlrc_features", "pfml"])
@pytest.mark.parametrize("args", [{}, {"momentum": 0.9}])
def test_a_typed_optimizer_takes_only_typed_arguments(protocol, args):
    words = [f"optim.args.{name}={value}" for name, value in args.items()]
    optim = compose_config("train", [f"protocol={protocol}", "optim._target_=a.B", *words]).optim
    assert optim.args == args
    assert optim.name == "B"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("choice", OPTIMIZERS)
def test_a_chosen_optimizer_takes_only_its_arguments(protocol, choice):
    optim = compose_config("train", [f"protocol={protocol}", f"optim={choice}"]).optim
    file = OmegaConf.load(CONFIGS / "optim" / f"{choice}.yaml")
    assert (optim.name, optim._target_) == (file.name, file._target_)
    # `fused`, a matter of speed, is left out where a class has no such kernels
    assert {name: value for name, value in optim.args.items() if name != "fused"} == file.args


def test_other_options_of_a_schedule_and_an_optimizer_stay():
    words = ["protocol=conventional", "optim.schedule.patience=7", "optim.args.eps=1e-3"]
    assert drop_replaced_arguments(words) == words
    optim = compose_config("train", [*words, "optim._target_=a.B", "optim.name=mine"]).optim
    assert (optim.name, optim.schedule.patience, optim.schedule.factor) == ("mine", 7, 0.5)


def test_schedules_of_a_sweep_take_only_typed_arguments():
    words = drop_replaced_arguments(["-m", "optim.schedule._target_=a.B,a.C"])
    assert words == ["optim.schedule=null", "-m", "++optim.schedule._target_=a.B,a.C"]


@pytest.mark.parametrize("group", ["experiment", "loss"])
def test_a_byte_order_mark_of_a_config_is_named(tmp_path, group):
    (tmp_path / group).mkdir()
    path = tmp_path / group / "mine.yaml"
    text = "# @package _global_\nseed: 1\n"
    flags = [f"--config-dir={tmp_path}"]
    path.write_text(text, encoding="utf-8")
    refuse_wrong_flags(flags, [f"+{group}=mine", "seed=2"])
    path.write_text(text, encoding="utf-8-sig")
    refuse_wrong_flags(flags, ["seed=2"])  # it is not read
    with pytest.raises(ConfigError, match="begins with a byte order mark; save it as"):
        refuse_wrong_flags(flags, [f"+{group}=mine", "seed=2"])
