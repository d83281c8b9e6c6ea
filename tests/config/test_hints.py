"""Usual slips of people who come from other programs, and the command that answers each."""

import pytest
from omegaconf import OmegaConf

from dml.config.command_line import reorder_flags
from dml.config.config_groups import CONFIGS, list_groups
from dml.config.explain import explain, list_options, suggest_for_flag
from dml.config.hints import Vocabulary, suggest_choice, suggest_custom, suggest_option
from dml.core.errors import ConfigError

CIRCLE = "loss=custom loss._target_=pytorch_metric_learning.losses.CircleLoss"
OPTIONS = {
    "lr=0.1": "write optim.lr=0.1",
    "epochs=10": "write protocol.epochs=10",
    "recall_at=1": "python evaluate.py run=<run folder> recall_at=[1,10]",
    "batch_size=64": "write data.batch_size=64",
    "weight_decay=0.1": "write optim.weight_decay=0.1",
    "num_workers=4": "write data.workers=4",
    "train.epochs=3": "write protocol.epochs=3",
    "optimizer.lr=0.1": "write optim.lr=0.1",
    "loss.lr=1": "write optim.loss_lr=1",
    "model.pretrained=false": "write backbone.weights=none",
    "pretrained=true": "write backbone.weights=imagenet",
    "gpus=2": "write torchrun --nproc-per-node=2 train.py …",
    "gpus=1": "write device=cuda",
    "gpu=1": "write device=cuda:1",
    "model=resnet50": "write backbone=resnet50",
    "dataset=CUB": "write data=cub",
    "optimizer=SGD": "write optim=sgd",
    "lr_scheduler=cosine": "write optim.schedule=cosine",
    "wandb=true": "write tracking=wandb",
    "wandb=false": "write tracking=none",
    "project=x": "write tracking=wandb tracking.project=x",
    "run_name=mine": "write name=mine",
    "seeds=0,1": "write -m seed=0,1",
    "seeds=3": "write -m seed=0,1,2",
    "size=64": "write embedder.size=64 or transform.size=64",
    "temperature=1": "write loss=norm_softmax loss.temperature=1 (also ntxent, proxy_nca_pp)",
}
CHOICES = {
    ("loss", "MFCWMS"): "loss=mfcwms",
    ("loss", "ProxyAnchorLoss"): "loss=proxy_anchor",
    ("loss", "multi_similarity"): "loss=ms",
    ("loss", "circle"): CIRCLE,
    ("loss", "my_losses.Center"): "loss=custom loss._target_=my_losses.Center",
    ("data", "Cars-196"): "data=cars",
    ("data", "/my/images"): "data=folder data.root=/my/images",
    ("backbone", "convnext_tiny"): "backbone=timm backbone.model=convnext_tiny",
    ("backbone", "convnext_tinny"): "backbone=timm backbone.model=convnext_tiny",
    ("backbone", "my_nets.Net"): "backbone=custom backbone._target_=my_nets.Net",
    ("tracking", "true"): "tracking=wandb",
    ("loss", "mfcwm"): "",  # `explain` names the nearest choice
}
WORDS = {
    "cub": "cub: not of the form option=value; write data=cub",
    "lr 0.1": "lr: not of the form option=value; write optim.lr=0.1",
    "lr = 0.1": "lr = …: an option has no blanks around =; write optim.lr=0.1",
    "lr:0.1": "lr:0.1: not of the form option=value; write optim.lr=0.1",
    "-m lr=1,2": "lr: no such option; write optim.lr=1,2",
}
FLAGS = {
    "--lr 3e-4": "--lr: no such flag; write optim.lr=3e-4",
    "--epochs=3": "--epochs: no such flag; write protocol.epochs=3",
    "--batch-size 64": "--batch-size: no such flag; write data.batch_size=64",
    "--wandb": "--wandb: no such flag; write tracking=wandb",
}


@pytest.fixture(scope="session")
def vocabulary(default_config):
    content = OmegaConf.to_container(default_config)
    del content["space"]
    choices = {
        group: [file.stem for file in (CONFIGS / group).glob("*.yaml")] for group in list_groups()
    }
    return Vocabulary(list_options(content), choices)


@pytest.mark.parametrize(("typed", "hint"), OPTIONS.items())
def test_options(vocabulary, typed, hint):
    name, _, value = typed.partition("=")
    assert suggest_option(name, value, vocabulary) == f"; {hint}"


@pytest.mark.parametrize(("slip", "command"), CHOICES.items())
def test_choices(slip, command):
    choices = {
        "loss": ["mfcwms", "ms", "proxy_anchor", "custom"],
        "data": ["cub", "cars", "folder"],
        "backbone": ["resnet50", "timm", "custom"],
        "tracking": ["none", "wandb"],
    }
    group, value = slip
    assert suggest_choice(group, value, choices[group]) == command


@pytest.mark.parametrize(("typed", "line"), WORDS.items())
def test_stray_words(typed, line):
    assert explain(typed.split(), "train") == [line]


@pytest.mark.parametrize(("typed", "line"), FLAGS.items())
def test_flags(typed, line):
    with pytest.raises(ConfigError) as caught:
        reorder_flags(typed.split(), lambda *flag: suggest_for_flag(*flag, "train"))
    assert caught.value.problems == [f"{line}; options are given as name=value"]


def test_another_class_with_the_options_of_a_file():
    node = {"name": "ms", "_target_": "my_losses.Center", "alpha": 2}
    assert suggest_custom("loss", node) == (
        "loss._target_: my_losses.Center does not take the options of loss=ms; write loss=custom "
        "loss._target_=my_losses.Center"
    )
    usual = "pytorch_metric_learning.losses.MultiSimilarityLoss"
    assert suggest_custom("loss", node | {"_target_": usual}) == ""
    assert suggest_custom("loss", node | {"name": "Center"}) == ""
    assert suggest_custom("data.reader", node) == ""
