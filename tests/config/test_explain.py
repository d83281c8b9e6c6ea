"""Slips of newcomers: each is answered by one line that helps, without a traceback."""

import pytest

from dml.config.command_line import list_groups
from dml.config.explain import ALIASES, explain, list_options
from dml.core.installation import CONFIGS

SLIPS = {  # words → the option, and what helps
    "--loss mfcwms": ("--loss", "did you mean 'loss'?; options are given as name=value"),
    "loss = mfcwms": ("=", "without spaces"),
    "loss=mfcwm": ("loss", "'mfcwm' does not exist; did you mean 'mfcwms'?"),
    "backbone=resnet18": ("backbone", "backbone=timm backbone.model=resnet18"),
    "loss=mfcwms,ms": ("loss", "add -m for a grid, or [] for a list"),
    "loss={mfcwms": ("loss={mfcwms", "not of the form option=value; quote special characters"),
    "loss=custom": ("loss._target_", "write loss._target_=<module>.<class>"),
    "loss=custom loss._target_=my_package.MyLoss": ("loss._target_", "no module 'my_package'"),
    "lr=0.1": ("lr", "no such option; did you mean 'optim.lr'?"),
    "cub": ("cub", "write data=cub"),
    "data=cub": ("data.root", ""),
    "data=folder data.root=/nowhere": (
        "data.root",
        "/nowhere does not exist; set it with",
    ),
    "protocol=mlrc data=folder": ("data.root", "set it with data.root"),
    "backbone=timm": ("backbone.model", "missing; write backbone.model=<value>"),
    "search={}": ("search", "add search=bayes"),
    "-m seed=range(3,0)": ("seed=range(3,0)", "no values"),
    "x.npz": ("x.npz", "; write data=features data.root=x.npz"),
    "photos": ("photos", "; write data=folder data.root=photos"),
    "data=photos": ("data", "images of your own write data=folder data.root=photos"),
    "data.root=photos": ("data.root", "photos has no glyphs, which are the default"),
    "run": ("run", "; write resume=run"),
    "resume": ("resume", "; write resume=<value>"),
    "--resume=run": ("--resume=run", "did you mean 'resume'?"),
    "-m seed=0,": ("seed=0,", "write the values without spaces, such as seed=0,1"),
    "evaluation.compress=int8": (
        "evaluation.compress",
        "must be a list; write evaluation.compress=[int8]",
    ),
    "optim.LR=0.1": ("optim.LR", "no such option; did you mean 'optim.lr'?"),
    "search=bayes protocol=mlrc data=digits search.Trials=2": (
        "search.Trials",
        "did you mean 'search.trials'?",
    ),
    "resume=true": ("resume", "write resume=<run folder>"),
}


@pytest.mark.parametrize("typed", SLIPS)
def test_a_slip_is_answered_in_one_line(typed, command_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "kind").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "x.npz").touch()
    status, _, err = command_line(*typed.split())
    (line,) = err.splitlines()
    option, advice = SLIPS[typed]
    assert line.startswith(f"error: {option}: ")
    assert advice in line
    assert status in (1, 2)


TOGETHER = {  # slips of one command, in the order of their lines
    "backbone=me/net": ("backbone", "backbone=timm"),
    "data=CUB": ("data", "'cub'?"),
    "hydra/sweeper=optuna": ("hydra/sweeper", "search=bayes"),
    "hydra/launcher=joblib": ("hydra/launcher", "pip install hydra-joblib-launcher"),
    "experiment=table1": ("experiment", "'mft_table1'?"),
    "--mutlirun": ("--mutlirun", "'--multirun'?"),
    "optimizer=adam": ("optimizer", "'optim'?"),
    "batchsize=32": ("batchsize", "'data.batch_size'?"),
    "epochs=5": ("epochs", "'protocol.epochs'?"),
    "workers=-2": ("workers", "'data.workers' or 'protocol.workers'?"),
    "loss.gamma=2": ("loss.gamma", "valid are loss.batch_kind, loss.alpha, loss.beta"),
    "optim.args={ep:3}": ("optim.args.ep", "'optim.args.eps'?; +optim"),
    "+seed=4": ("seed", "already at 'seed'"),
}


def test_the_slips_of_a_command_have_a_line_each():
    found = explain([*TOGETHER], "train")
    for line, (option, advice) in zip(found, TOGETHER.values(), strict=True):
        assert line.startswith(f"{option}: ")
        assert advice in line


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
    assert found.startswith("loss: 'centre'")
    assert "'center'" in found
    (found,) = explain([place, "loss=broken"], "train")
    assert "loss=broken: " in found
    assert f'"{tmp_path}/loss/broken.yaml", line 1' in found


def test_a_model_of_timm_needs_timm():
    model = "backbone.model=vit_small_patch16_224.dino"
    (line,) = explain(["experiment=off_the_shelf", "scale=standin", model], "train")
    assert line == (
        "backbone.model: is an option of backbone=timm, and the network here is small_cnn; add "
        "backbone=timm, or leave backbone.model out"
    )
    words = ["experiment=off_the_shelf", "scale=standin", "backbone=timm", model]
    assert explain([*words, "transform.size=32"], "train") == []


def test_what_the_grids_of_an_experiment_set_is_not_missing():
    words = ["experiment=off_the_shelf", "typo=1"]
    assert explain(words, "train") == ["typo: no such option"]
