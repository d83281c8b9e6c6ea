"""Slips of newcomers: each is answered by one line that helps, without a traceback."""

import pytest

from dml.config.command_line import list_groups
from dml.config.explain import ALIASES, explain, list_options
from dml.core.installation import CONFIGS

SLIPS = {
    "--loss mfcwms": "--loss: no such flag; did you mean 'loss'?; options are given as name=value",
    "loss = mfcwms": "=: write options without spaces, such as loss=ms",
    "loss=mfcwm": "loss: 'mfcwm' does not exist; did you mean 'mfcwms'?",
    "loss=mfcwms,ms": "loss: mfcwms,ms are several values; add -m for a grid, or [] for a list",
    "loss={mfcwms": "loss={mfcwms: not of the form option=value; quote special characters",
    "loss.gamma=2": "loss.gamma: no such option; valid are loss.batch_kind, loss.alpha, loss.beta",
    "loss=custom": "loss._target_: missing; write loss._target_=<module>.<class>",
    "loss=custom loss._target_=my_package.MyLoss": "loss._target_: no module 'my_package' for",
    "lr=0.1": "lr: no such option; did you mean 'optim.lr'?",
    "optimizer=adam": "optimizer: no such option; did you mean 'optim'?",
    "batchsize=32": "batchsize: no such option; did you mean 'data.batch_size'?",
    "epochs=5": "epochs: no such option; did you mean 'protocol.epochs'?",
    "hydra/sweeper=optuna": "hydra/sweeper: 'optuna' does not exist; search=bayes is the search",
    "backbone=me/net": "backbone: 'me/net' does not exist; of the Hugging Face hub: backbone=timm",
    "data=CUB": "data: 'CUB' does not exist; did you mean 'cub'?",
    "cub": "cub: not of the form option=value; write data=cub",
    "data=cub": "data.root: ",
    "data=folder data.root=/nowhere": "data.root: no folder or CSV file /nowhere; set it with",
    "protocol=mlrc data=folder": "data.root: no folder or CSV file data; set it with data.root",
    "backbone=timm": "backbone.model: missing; write backbone.model=<value>",
    "search={}": "search: missing; add search=bayes",
    "experiment=table1": "experiment: 'table1' does not exist; did you mean 'mft_table1'?",
    "-m seed=range(3,0)": "seed=range(3,0): has no values",
    "workers=-2": "workers: no such option; did you mean 'data.workers' or 'protocol.workers'?",
    "resume=true": "resume: 'true' is not a run folder; write resume=<run folder>",
    "--mutlirun": "--mutlirun: no such flag; did you mean '--multirun'?; options are given as",
    "+seed=4": "seed: Could not append to config. An item is already at 'seed'.",
    "optim.args={ep:3}": "optim.args.ep: no such option; did you mean 'optim.args.eps'?; +optim",
    "hydra/launcher=joblib": "hydra/launcher: 'joblib' needs: pip install hydra-joblib-launcher",
}


@pytest.mark.parametrize("typed", SLIPS)
def test_a_slip_is_answered_in_one_line(typed, command_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = command_line(*typed.split())
    (line,) = err.splitlines()
    assert line.startswith(f"error: {SLIPS[typed]}")
    assert status in (1, 2)


def test_all_mistakes_of_a_command():
    words = "los=ms,c1 loss=ms,mss seed=x --foo params=mlrc optim.lr=1"
    names = [line.partition(":")[0] for line in explain(words.split(), "train")]
    assert names == ["los", "loss", "loss", "--foo", "los", "seed"]


def test_a_valid_command_has_no_problem():
    words = ["-m", "loss=ms,c1", "seed=0,1", "~search", "++seed=3", "transform.scale.0=0.5"]
    assert explain(words, "train") == []


def test_aliases_mean_what_exists(default_config):
    valid = {*list_options(default_config), *list_groups()}
    assert set(ALIASES.values()) <= valid


@pytest.mark.parametrize("way", ["hydra.searchpath=[file://{}]", "--config-dir={}"])
def test_choices_in_the_users_own_folders(tmp_path, way):
    (tmp_path / "loss").mkdir()
    (tmp_path / "loss" / "center.yaml").write_text((CONFIGS / "loss" / "ms.yaml").read_text())
    (tmp_path / "loss" / "broken.yaml").write_text("a: b: c")
    place = way.format(tmp_path)
    assert explain([place, "loss=center"], "train") == []
    (found,) = explain([place, "loss=centre"], "train")
    assert found == "loss: 'centre' does not exist; did you mean 'center'?"
    (found,) = explain([place, "loss=broken"], "train")
    assert (
        f'loss=broken: mapping values are not allowed here in "{tmp_path}/loss/broken.yaml", line 1'
        in found
    )
