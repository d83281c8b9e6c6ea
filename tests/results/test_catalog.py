"""Every experiment composes, opens with its command, and runs on stand-ins."""

from __future__ import annotations

import shlex

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.compositions import compose_cells, compose_config
from dml.config.grids import expand_grids
from dml.config.identity import digest, identity, result_id
from dml.core.errors import ConfigError
from dml.core.installation import CONFIGS
from dml.results.catalog import experiment_ids, list_cells, load_experiment
from dml.runs.folder.run_folder import RunFolder

# The smallest of everything; `scale=standin` alone takes minutes.
SMALLEST = (
    *("scale=standin", "device=cpu", "backbone.width=4", "data.eval_batch_size=1000"),
    *("protocol.epochs=1", "protocol.steps_per_epoch=2", "protocol.repeats=1"),
)
DIGITS = ("data=digits",)
# a search needs several classes for validation
FEW_GLYPHS = ("data=glyphs", "data.reader.classes=24", "data.reader.per_class=6")
ONE_TRIAL = (*FEW_GLYPHS, "search.trials=1", "data.batch_size=8")
# The experiments that differ most are in every test run, the others before a release.
QUICK = ("mft_table15", "pfml_table3")


def trained() -> list[str]:
    return [id for id in experiment_ids() if load_experiment(id).trains]


@pytest.mark.parametrize("name", trained())
def test_a_command_runs_its_cell_and_no_other(name):
    node = OmegaConf.load(CONFIGS / "experiment" / f"{name}.yaml")
    sweeper = OmegaConf.select(node, "hydra.sweeper") or {}
    params, grids = sweeper.get("params"), sweeper.get("grids")
    for job in expand_grids(params, grids, [f"experiment={name}"]):
        typed = [word for word in job if not word.startswith("experiment.")]
        (found,) = expand_grids(params, grids, typed)
        assert sorted(found) == sorted(job)


@pytest.mark.parametrize("name", experiment_ids())
def test_files_state_their_hours_and_a_command_that_parses(name):
    lines = (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    hours = load_experiment(name).gpu_hours
    if hours is not None:
        assert f"# About {hours:g} GPU hours (estimate; see dml plan)." in lines
    if lines[2].startswith("# python"):
        words = shlex.split(lines[2].removeprefix("# python train.py "))
        OverridesParser.create().parse_overrides(words)


@pytest.mark.pictures
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.soak) for n in trained()]
)
def test_a_cell_runs_on_a_stand_in(name, tmp_path, glyphs_root):
    from dml.runs.experiment import run

    own = DIGITS if compose_config([f"experiment={name}"]).search is None else ONE_TRIAL
    found = list_cells(name, [*SMALLEST, *own, f"outputs={tmp_path}", f"data.root={glyphs_root}"])
    cell = found[-1]
    config = check(compose_config(cell.overrides))
    summary = run(config)
    assert RunFolder.of(config).path == cell.folder
    assert (cell.folder / "summary.json").exists()
    assert summary["stand_in"]
    assert summary["result_id"] == result_id(config)
    measured = set(config.evaluation.measures) - {"positivity"}
    assert measured <= summary["metrics"].keys()
    for figure in config.experiment.figures:
        if figure in ("neighbors", "positivity", "stages", "search_history"):
            assert (cell.folder / "figures" / f"{figure}.png").exists()
        if figure == "embedding_map":
            assert list(cell.folder.glob("checkpoints/*/test_embeddings.npz"))


@pytest.mark.parametrize("name", ["metrix_table6", "pfml_table9"])
def test_the_sweeper_runs_the_cells_of_the_catalog(name):
    """Their settings refer to options of the cell, not to those of the experiment's first loss."""
    word = f"experiment={name}"
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose("train", [word], return_hydra_config=True)
        sweeper = instantiate(cfg.hydra.sweeper)
        loader = GlobalHydra.instance().config_loader()
        jobs = expand_grids(sweeper.params, sweeper.grids, [word], loader)
    cells = list_cells(name)
    assert jobs == [list(cell.overrides) for cell in cells]
    settings = {str(cell.options.experiment.setting) for cell in cells}
    assert len(settings) > 2  # and a job's own config gives its setting
    assert {str(compose_config(job).experiment.setting) for job in jobs} == settings


def test_cells_below_another_folder():
    name, folder = "mft_table12", "some/where"
    composed = compose_cells(name, [f"outputs={folder}"])
    cells = list_cells(name, outputs=folder)
    assert [[list(cell.overrides), cell.options] for cell in cells] == composed
    assert digest(cells[-1].options) == digest(compose_config(cells[-1].overrides))
    assert cells[-1].options.outputs == folder


def test_an_experiment_of_a_script_is_not_trained(command_line):
    status, _, err = command_line("experiment=pfml_figure2")
    assert status == 2
    assert "python studies/show_field.py" in err


def test_an_unknown_experiment():
    with pytest.raises(ConfigError, match="did you mean 'mft_table1'"):
        list_cells("mft_tabel1")


def test_the_description_of_an_experiment_is_not_in_the_digest(composed):
    words = ["experiment=mft_table12", "loss.alpha=20"]
    one, other = composed(*words), composed(*words, "experiment.title=another")
    assert digest(one) == digest(other)
    assert not any(name.startswith("experiment") for name in identity(one))


def test_overrides_come_before_the_papers_values(composed):
    (cell,) = list_cells("ccp_table4", ["data=cars", "loss=c2", "method=plain"])
    assert cell.options.loss.positive_margin == 0.2652
    (cell,) = list_cells(
        "ccp_table4", ["data=cars", "loss=c2", "method=plain", "loss.positive_margin=1"]
    )
    assert cell.options.loss.positive_margin == 1
    (cell,) = list_cells("mft_table14", ["data=cub", "loss=mfcwms"])
    assert (cell.options.loss.alpha, cell.options.experiment.setting) == (20, "alpha=20")


def test_cells_with_the_values_of_a_table():
    (cell,) = list_cells("mft_table1", ["loss=arcface", "data=cub", "params=mlrc"])
    assert cell.options.loss.margin == 23.22
    assert "params=mlrc" in cell.command
    assert compose_config(cell.overrides).loss.margin == 23.22
