"""Options that follow from others, in the first trial of a search and after its last one."""

import pytest
from omegaconf import OmegaConf

import dml
from dml.config.check import check
from dml.config.search_space import merge_spaces
from dml.core.errors import ConfigError
from dml.runs import experiment
from dml.runs.folder.run_folder import load_config
from dml.runs.search import search_loop
from dml.runs.search.proposals import create_distributions
from tests.system.finished_runs import start


@pytest.mark.promise(
    "guides/search.md",
    "other options follow from a searched one, such as the normalization of images from the "
    "network: all commands that use the run have those of the best trial",
)
def test_options_that_follow_from_the_best_value(prepared, tmp_path, monkeypatch):
    """They were those of the start of the search."""
    words = ("protocol=holdout", "search.trials=2", "search.startup=2", "search.sampler=tpe")
    space = "+space.optim.warmup_steps={choices:[2,3]}"
    cfg, folder = prepared(*words, space)
    summary = start(cfg)
    assert summary["search"]["params"]["optim.warmup_steps"] in (2, 3)
    stored = OmegaConf.load(folder.config)
    assert stored.optim.schedule_unit == "epochs"
    assert load_config(folder.path).optim.schedule_unit == "steps"
    assert dml.load(folder.path)
    folder.summary.rename(folder.path / "kept.json")
    with pytest.raises(ConfigError, match=r"resume: optim.schedule_unit would not follow"):
        experiment.resume(folder.path)
    (folder.path / "kept.json").rename(folder.summary)
    assert experiment.resume(folder.path) == summary
    exported = dml.export(folder.path, tmp_path / "net")
    assert {path.name for path in exported.iterdir()} == {
        "config.yaml",
        "model.safetensors",
        "README.md",
    }
    assert OmegaConf.load(exported / "config.yaml").optim.schedule_unit == "steps"
    assert dml.load(exported)


@pytest.mark.parametrize("loss", ["proxy_anchor", "mfcont"])
def test_the_first_trial_has_the_rate_of_the_loss(composed, loss, capsys):
    """It follows from that of the network, and was drawn at random."""
    rate = "+space.optim.lr={low:1e-6,high:1e-3,log:true}"
    words = ("search=bayes", "search.try_defaults=true", "protocol=mlrc", "data=cub", rate)
    config = check(composed(f"loss={loss}", *words, "optim.lr=1e-5"))
    space = create_distributions(merge_spaces(config.space))
    first = search_loop._read_defaults(config, space)
    assert first["optim.loss_lr"] == pytest.approx(1e-5 * config.optim.loss_lr_ratio)
    assert first["optim.lr"] == 1e-5
    changed = check(composed(f"loss={loss}", *words, "optim.lr=1e-9"))
    search_loop._read_defaults(changed, space)
    assert (
        "note: search.try_defaults: optim.lr is 1e-06 instead of 1e-09" in capsys.readouterr().out
    )
