"""Values that W&B receives, through a stand-in for its library and through the library itself."""

import json

import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.system.finished_runs import start


@pytest.fixture
def prepared(composed, tmp_path):
    """The config and folder of a run that was not started yet."""

    def prepare(*overrides, tracking="wandb", name="outputs"):
        places = (f"outputs={tmp_path / name}", f"tracking={tracking}")
        cfg = composed(*TINY, "protocol.epochs=3", *places, *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def history_of(folder, job=(0, 0)):
    """The rows of `history.csv` as W&B should have them."""
    rows = History(folder / "history.csv").job_rows(*job)
    return [
        {"_step": row["step"], **{k: row[k] for k in row if k not in ("repeat", "fold", "step")}}
        for row in rows
    ]


@pytest.mark.pictures
def test_one_model_is_one_run(prepared, service, capsys):
    cfg, folder = prepared("experiment.id=mft_table1", "tracking.tags=[mine]")
    summary = start(cfg)
    (name,) = service.ids()
    assert name == folder.run_id()
    (options,) = service.inits(name)
    assert options["group"] == "mft_table1"
    assert options["job_type"] == "repeat0-fold0"
    assert options["resume"] == "allow"
    assert options["project"] == "dml-benchmark"
    assert options["tags"] == ["digits", "traditional", "stand-in", "mine"]
    assert options["config"]["loss"]["name"] == "mfcwms"
    assert options["config"]["run"]["result_id"] == "mf_cwms"
    assert (options["config"]["run"]["repeat"], options["config"]["run"]["fold"]) == (0, 0)
    assert "tracking" not in options["config"]
    assert service.rows(name) == history_of(folder.path)
    assert [row["_step"] for row in service.rows(name)] == [0, 7, 14, 21]
    assert service.pictures(name) == {
        "figures/embedding_map": "image embedding_map.png",
        "figures/learning_curve": "image learning_curve.png",
        "figures/neighbors": "image neighbors.png",
    }
    final = service.summary(name)
    assert final["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert final["untrained/recall_at_1"] == summary["untrained"]["recall_at_1"]["mean"]
    assert final["images_per_second"] == summary["images_per_second"]
    assert "map_at_r" in service.rows(name)[-1]
    assert service.exits(name) == [0]
    assert f"https://example.org/{name}" in capsys.readouterr().out.replace("\n", "")
    start(cfg)  # finished, and W&B has it all
    assert len(service.inits(name)) == 1


@pytest.mark.parametrize(
    ("point", "lost", "pictures"),
    [
        ("before_rename:9", 0, 0),  # a row is sent that the checkpoint does not know
        ("between_checkpoints:3", 2, 0),  # W&B has not received the last rows
        pytest.param("wandb_log:5", 0, 3, marks=pytest.mark.pictures),  # the row of figures
        ("wandb_finish:1", 0, 0),  # the run is finished, but not in W&B
    ],
)
def test_a_killed_run_continues_without_gap_or_repeat(prepared, service, point, lost, pictures):
    cfg, folder = prepared()
    assert die_at(point, start, cfg) != 0
    (name,) = service.ids()
    if lost:
        service.lose(name, lost)
    summary = start(cfg)
    assert service.ids() == [name]
    assert service.rows(name) == history_of(folder.path)
    assert not (service.folder / name / "dropped.jsonl").exists()
    assert len(service.pictures(name)) == pictures
    assert service.summary(name)["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert service.exits(name) == [0]


def test_folds_are_runs_of_their_own(run_small, service):
    folder = RunFolder(run_small("tracking=wandb"))
    summary, name = json.loads(folder.summary.read_text()), folder.run_id()
    folds = {fold: f"{name}-repeat0-fold{fold}" for fold in range(4)}
    assert service.ids() == [name, *folds.values()]
    inits = {one: options for one in service.ids() for (options,) in [service.inits(one)]}
    assert inits[name]["job_type"] == "combined"
    assert len({options["group"] for options in inits.values()}) == 1
    for fold, one in folds.items():
        assert inits[one]["job_type"] == f"repeat0-fold{fold}"
        assert service.rows(one) == history_of(folder.path, (0, fold))
        score = summary["jobs"][fold]["metrics"]["map_at_r"]
        assert service.summary(one)["test/map_at_r"] == score
    assert service.rows(name) == []
    for title, part in (("combined", summary), ("concatenated", summary["concatenated"])):
        assert service.summary(name)[f"{title}/map_at_r"] == part["metrics"]["map_at_r"]["mean"]
    assert [service.exits(one) for one in service.ids()] == [[0]] * 5
