import pytest

from dml.config.config_groups import CONFIGS
from dml.config.explain import explain


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["loss=null"], "loss: 'null' does not exist; one of arcface | "),
        (["loss=3"], "loss: '3' does not exist; one of arcface | "),
        (["~loss"], "loss: cannot be left out; one of "),
        (["search=null"], "search: has no choice by default: leave search out; ~search removes an"),
        (["space=mfcwms"], "space: cannot be chosen as a whole; its options are space.loss, "),
        (["hydra/launcher=foo"], "hydra/launcher: 'foo' does not exist; one of basic | slurm"),
        (["hydra/launcher=joblib"],
         "hydra/launcher: 'joblib' is not installed; run: pip install hydra-joblib-launcher"),
        (["-m", "hydra/launcher=slurm"],
         "hydra/launcher: 'slurm' is not installed; run: pip install hydra-submitit-launcher"),
        (["optim.groups.head.lr=1"],
         "optim.groups.head.lr: no such option; +optim.groups.head.lr=1 adds it"),
        (["optim.args.ep=1"], "optim.args.ep: no such option; did you mean 'optim.args.eps'?; +"),
        (["optim.args={lr:3}"], "optim.args.lr: no such option; +optim.args.lr="),
        (["epochs=ten"], "epochs: no such option; write protocol.epochs=<number>"),
        (["seeed=1"], "seeed: no such option; did you mean 'seed'?"),
        (["embedder=[1,2,3]"], "embedder: '[1,2,3]' does not exist; one of default"),
        (["+seed=4"], "seed: exists already; leave out the +"),
        (["seed=0,1"], "seed: 0,1 are several values; for a grid of runs add -m; for a list "),
        (["loss=ms,c1"], "loss: ms,c1 are several values; for a grid of runs add -m"),
        (["-m", "loss=ms,mss"], "loss: 'mss' does not exist; did you mean 'ms'?"),
        (["foo"], "foo: not of the form option=value"),
        ([""], "'': not of the form option=value"),
        (["=3"], "=3: not of the form option=value; quote special characters"),
    ],
)  # fmt: skip
def test_one_mistake(words, problem):
    (found,) = explain(words, "train")
    assert found.startswith(problem)


def test_a_valid_command_has_no_problem():
    assert explain(["-m", "loss=ms,c1", "seed=0,1", "~search", "++seed=3"], "train") == []


@pytest.mark.parametrize("way", ["hydra.searchpath=[file://{}]", "--config-dir={}"])
def test_choices_in_the_users_own_folders(tmp_path, way):
    (tmp_path / "loss").mkdir()
    mine = (CONFIGS / "loss" / "ms.yaml").read_text()
    (tmp_path / "loss" / "center.yaml").write_text(mine)
    place = way.format(tmp_path)
    assert explain([place, "loss=center"], "train") == []
    (found,) = explain([place, "loss=centre"], "train")
    assert found == "loss: 'centre' does not exist; did you mean 'center'?"
    (found,) = explain([place, "loss=center", "seeed=1"], "train")
    assert found.startswith("seeed: ")
