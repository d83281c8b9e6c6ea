import pytest

from dml.cli import CONFIGS
from dml.config.config_groups import choices_for_help, chosen_groups
from dml.config.explain import explain
from dml.config.overlooked import overlooked


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["loss=null"], "loss: no 'null'; one of arcface | "),
        (["loss=3"], "loss: no '3'; one of arcface | "),
        (["~loss"], "loss: cannot be left out; one of "),
        (["search=null"], "search: no choice is the default: leave search out"),
        (["space=mfcwms"], "space: is not chosen as a whole; its options are space.loss, "),
        (["hydra/launcher=foo"], "hydra/launcher: no 'foo'; one of basic | slurm"),
        (["optim.groups.head.lr=1"],
         "optim.groups.head.lr: no such option; +optim.groups.head.lr=1 adds it"),
        (["optim.args.ep=1"], "optim.args.ep: no such option; did you mean 'optim.args.eps'?; +"),
        (["optim.args={lr:3}"], "optim.args.lr: no such option; did you mean 'optim.args.eps'?; +"),
        (["seeed=1"], "seeed: no such option; did you mean 'seed'?"),
        (["embedder=[1,2,3]"], "embedder: no '[1,2,3]'; one of default"),
        (["+seed=4"], "seed: is there already; leave the + out"),
        (["seed=0,1"], "seed: 0,1 are several values; for a grid of runs add -m; for a list "),
        (["loss=ms,c1"], "loss: ms,c1 are several values; for a grid of runs add -m"),
        (["-m", "loss=ms,mss"], "loss: no 'mss'; did you mean 'ms'?"),
        (["foo"], "foo: not of the form option=value"),
        ([""], "'': not of the form option=value"),
        (["=3"], "=3: not of the form option=value; quote special characters"),
    ],
)  # fmt: skip
def test_one_mistake(words, problem):
    (found,) = explain(words, "train")
    assert found.startswith(problem)


def test_what_composes_is_no_mistake():
    assert explain(["-m", "loss=ms,c1", "seed=0,1", "~search", "++seed=3"], "train") == []


@pytest.mark.parametrize("way", ["hydra.searchpath=[file://{}]", "--config-dir={}"])
def test_choices_in_folders_of_the_users_own(tmp_path, way):
    (tmp_path / "loss").mkdir()
    mine = (CONFIGS / "loss" / "ms.yaml").read_text()
    (tmp_path / "loss" / "center.yaml").write_text(mine)
    place = way.format(tmp_path)
    assert explain([place, "loss=center"], "train") == []
    (found,) = explain([place, "loss=centre"], "train")
    assert found == "loss: no 'centre'; did you mean 'center'?"
    (found,) = explain([place, "loss=center", "seeed=1"], "train")
    assert found.startswith("seeed: ")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nope", "nope is no list; write [file://<folder>]"),
        ("[file:///no/such]", "file:///no/such is no folder"),
        ("[http://x]", "http://x is neither file://<folder> nor pkg://<package>"),
    ],
)
def test_search_paths_that_lead_nowhere(value, problem):
    assert overlooked([f"hydra.searchpath={value}"]) == [f"hydra.searchpath: {problem}"]


def test_help_lists_what_can_be_chosen():
    listed = [line.partition(":")[0] for line in choices_for_help().splitlines()]
    assert {"loss", "data", "protocol", "params", "search"} <= set(listed)
    assert not {"space", "recipe"} & set(listed)
    assert set(chosen_groups(empty=True)) >= {"search"}
    assert "loss" not in chosen_groups(empty=True)
    assert set(chosen_groups("evaluate")) == set(chosen_groups())


def test_grids_without_a_run():
    (found,) = overlooked(["-m", "seed=range(3,0)", "loss=ms,c1", "~search"])
    assert found == "seed: range(3,0) holds no value, so the grid has no run"
