"""What `--cfg` prints is what runs, without data."""

from __future__ import annotations

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.command_line import split_flags
from dml.config.printed_job import find_printed_job, prints_config
from dml.core.installation import CONFIGS
from dml.results.catalog import experiment_ids, list_cells, load_experiment
from tests.commands import evaluate

BEST = "loss.scale: 3\noptim.lr: 0.5\n"


def form_of(name):
    """What decides how an experiment is printed: its paper, and what its file has."""
    node = OmegaConf.load(CONFIGS / "experiment" / f"{name}.yaml")
    options = ("hydra.sweeper.params", "hydra.sweeper.grids", "experiment.params")
    has = [bool(OmegaConf.select(node, option)) for option in options]
    return name.partition("_")[0], *has


EXPERIMENTS = [name for name in experiment_ids() if load_experiment(name).trains]
ONE_OF_EACH_FORM = {form_of(name): name for name in EXPERIMENTS}.values()


@pytest.fixture
def printed(command_line):
    """Returns the comment and the config that a command prints."""

    def show(*words):
        status, out, err = command_line(*words)
        assert status == 0, err
        first = out.splitlines()[0]
        return first if first.startswith("# run") else "", yaml.safe_load(out)

    return show


@pytest.mark.parametrize(
    "words",
    [
        ["--cfg", "job", "--resolve"],
        ["--cfg=job", "--resolve"],
        ["-c", "job", "--resolve"],
        ["--resolve", "--cfg", "job"],
    ],
)
def test_a_run_of_an_experiment(printed, words):
    cell = list_cells("mft_table15")[-1]
    comment, config = printed(*words, *cell.overrides)
    assert comment == ""
    assert config == cell.options


def test_a_package_of_it_and_all_of_it(printed):
    cell = next(cell for cell in list_cells("ccp_table1") if "loss=c2" in cell.overrides)
    words = ("--resolve", "-p", "loss", *cell.overrides)
    assert printed("-c", "job", *words)[1] == cell.options["loss"]
    everything = printed("-c", "all", *cell.overrides)[1]
    assert everything["loss"]["negative_margin"] == cell.options["loss"]["negative_margin"]
    assert everything["hydra"]["job"]["config_name"] == "train"


def test_the_command_line_precedes_the_values_of_a_table(printed):
    words = ["experiment=ccp_table1", "loss=c2", "data=cub", "+loss.unknown=1"]
    words += ["loss.negative_margin=0.9", "method=ccp"]
    _, config = printed("--cfg", "job", "--package", "loss", *words)
    assert config["negative_margin"] == 0.9
    assert config["unknown"] == 1
    assert config["positive_margin"] == 0


@pytest.mark.parametrize("params", ["params=best.yaml", "experiment.params=best.yaml"])
def test_the_values_of_a_file(printed, tmp_path, monkeypatch, params):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "best.yaml").write_text(BEST)
    _, config = printed("--cfg", "job", "loss=arcface", params, "optim.lr=1")
    assert config["loss"]["scale"] == 3
    assert config["optim"]["lr"] == 1
    _, config = printed("--cfg", "job", "experiment=mft_table2", "loss=arcface", "data=cub", params)
    assert config["loss"]["scale"] == 3
    assert config["optim"]["lr"] == 0.5


@pytest.mark.parametrize(
    "flags",
    [
        *(["--info", "config"], ["-i", "all"], ["-c", "hydra"]),
        *(["--cfg=job"], ["--info=config"], ["--resolve", "--cfg=job"]),
    ],
)
def test_other_ways_to_print_it(flags):
    assert prints_config(flags)
    words, comment = find_printed_job([*flags, "loss=arcface", "data=cub", "params=mlrc"], "train")
    assert words[: len(flags)] == flags
    assert "loss.margin=23.22" in words
    assert "params=mlrc" not in words
    assert comment == ""
    assert not prints_config(["-m", "--config-dir", "x"])


OF_A_USER = """# @package _global_
experiment: {id: rates}
hydra: {mode: MULTIRUN, sweeper: {grids: ["optim.lr=0.25,0.5"]}}
"""


@pytest.mark.parametrize("flags", ["--config-dir mine", "--config-dir=mine", "-cd mine"])
def test_an_experiment_in_a_folder_of_the_user(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "rates.yaml").write_text(OF_A_USER)
    flags = [*flags.split(), "--cfg=job"]
    words, comment = find_printed_job([*flags, "experiment=rates"], "train")
    assert words == [*flags, "experiment=rates", "optim.lr=0.25"]
    assert comment.startswith("# run 1 of 2: optim.lr=0.25;")


def test_an_evaluation_prints_the_values_of_a_table(capfd):
    assert evaluate(["--cfg", "job", "loss=arcface", "data=cub", "params=mlrc"]) == 0
    assert "margin: 23.22" in capfd.readouterr().out


def test_own_code_is_printed_with_its_hash(printed, tmp_path, monkeypatch, own_modules):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_pack").mkdir()
    (tmp_path / "my_pack" / "__init__.py").write_text("")
    (tmp_path / "my_pack" / "loss.py").write_text("class Loss: pass")
    _, config = printed("--cfg", "job", "loss=custom", "loss._target_=my_pack.loss.Loss")
    assert config["code"].keys() == {"my_pack", "my_pack.loss"}
    assert all(len(digits) == 16 for digits in config["code"].values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["experiment=mft_table99"], "experiment: 'mft_table99'"),
        (["experiment=mft_table1", "loss=mss"], "loss: 'mss'"),
        (["loss=arcface", "data=cub", "params=nothing"], "params: nothing"),
        (["loss=arcface", "optim.lrr=1"], "optim.lrr: "),
        (["experiment=mft_table1", "data=cub", "+loss.x=["], "quote special"),
    ],
)
def test_a_mistake_is_one_line(command_line, words, message):
    status, out, err = command_line("--cfg", "job", *words)
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert out == ""


def test_no_run_combines_the_values(command_line):
    words = ["experiment=ccp_table3", "loss=c1", "method=plain", "method.proxies_per_class=8"]
    status, _, err = command_line("--cfg", "job", *words)
    assert status == 2
    assert len(err.splitlines()) == 1


def test_a_part_of_a_dataset_is_a_stand_in_in_both_configs(composed):
    cfg = composed("data=cub", "data.classes=20")
    config = check(cfg)
    assert config.data.stand_in == cfg.data.stand_in
    assert config.data.stands_in
    assert not check(composed("data=cub")).data.stands_in


# Last in the file: minutes of compositions.
@pytest.mark.parametrize("name", ONE_OF_EACH_FORM)
def test_of_an_experiment_the_first_run_is_printed_as_it_runs(name):
    cell, *others = list_cells(name)
    words, comment = find_printed_job(["--cfg", "job", f"experiment={name}"], "train")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        printed = compose("train", overrides=split_flags(words)[1])
    assert OmegaConf.to_container(printed, resolve=True) == cell.options
    assert bool(comment) == bool(others)
    for word in set(cell.overrides) - {f"experiment={name}"}:
        assert word in comment or not others
