import pytest

from dml.config.command_line import CONFIGS, list_groups
from dml.config.explain import ALIASES, explain, list_options

ADDS = "<value> adds it"
STRAY = "not of the form option=value"


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("loss=MFCWM", "loss: 'MFCWM' does not exist; did you mean 'mfcwms'?"),
        ("embedder=3", "embedder: '3' does not exist; one of default"),
        ("search=null", "search: 'null' does not exist; leave search out, or write ~search"),
        ("hydra/launcher=joblib",
         "hydra/launcher: 'joblib' is not installed; run: pip install hydra-joblib-launcher"),
        ("seeed=1", "seeed: no such option; did you mean 'seed'?"),
        ("lr=0.1", "lr: no such option; did you mean 'optim.lr'?"),
        ("size=64", "size: no such option; did you mean 'embedder.size' or 'transform.size'?"),
        ("train.batch-size=3", "train.batch-size: no such option; did you mean 'data.batch_size'?"),
        ("arch=resnet50", "arch: no such option; did you mean 'backbone'?"),
        ("loss.wheel=1", "loss.wheel: no such option; valid are loss.batch_kind, loss.alpha, "
         f"loss.beta, loss.delta, loss.lambda_mf, loss.regularizer; +loss.wheel={ADDS}"),
        ("optim.args={ep:3}", "optim.args.ep: no such option; did you mean 'optim.args.eps'?; "
         f"+optim.args.ep={ADDS}"),
        ("+seed=4", "seed: Could not append to config. An item is already at 'seed'."),
        ("seed=0,1", "seed: 0,1 are several values; add -m for a grid, or [] for a list"),
        ("cub", f"cub: {STRAY}; write data=cub"),
        ("lr", f"lr: {STRAY}; did you mean 'optim.lr'?"),
        ("", f"'': {STRAY}"),
        ("=3", f"=3: {STRAY}; quote special characters"),
        ("--lr", "--lr: no such flag; did you mean 'optim.lr'?; options are given as name=value"),
        ("--mutlirun",
         "--mutlirun: no such flag; did you mean '--multirun'?; options are given as name=value"),
        ("seed=-1", "seed: -1 must be at least 0"),
    ],
)  # fmt: skip
def test_one_mistake(word, problem):
    assert explain([word], "train") == [problem]


def test_all_mistakes_of_a_command():
    words = "los=ms,c1 loss=ms,mss seed=x --foo params=mlrc optim.lr=1"
    names = [line.partition(":")[0] for line in explain(words.split(), "train")]
    assert names == ["los", "loss", "loss", "--foo", "los", "seed"]


def test_a_valid_command_has_no_problem():
    words = ["-m", "loss=ms,c1", "seed=0,1", "~search", "++seed=3", "transform.scale.0=0.5"]
    assert explain(words, "train") == []


def test_aliases_mean_what_exists(default_config):
    from omegaconf import OmegaConf

    valid = {*list_options(OmegaConf.to_container(default_config)), *list_groups()}
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
