"""Values that W&B receives, through a stand-in for its library and through the library itself."""

import copy
import json
import sys
from dataclasses import replace

import pytest

from dml.config.check import check
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, RunInfo, track_run
from dml.tracking.weights_and_biases import WandbTracker, _masked_command_line
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.system.finished_runs import start
from tests.tracking.wandb_stand_in import Service


@pytest.fixture
def prepared(composed, tmp_path):
    """The config and folder of a run that was not started yet."""

    def prepare(*overrides, tracking="wandb", name="outputs"):
        places = (f"outputs={tmp_path / name}", f"tracking={tracking}")
        cfg = composed(*TINY, "protocol.epochs=3", *places, *overrides)
        return cfg, RunFolder.of(check(cfg))

    return prepare


def history_of(folder, job=(0, 0)):
    """The rows of `history.csv` as W&B should have them."""
    rows = History(folder / "history.csv").job_rows(*job)
    return [
        {"_step": row["step"], **{k: row[k] for k in row if k not in ("repeat", "fold", "step")}}
        for row in rows
    ]


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        ("/env/bin/dml loss=ms", "/env/bin/dml train loss=ms"),
        ("/env/lib/dml/__main__.py loss=ms", "/env/lib/dml/__main__.py train loss=ms"),
        ("train.py loss=ms", "train.py loss=ms"),
        ("/mine/__main__.py loss=ms", "/mine/__main__.py loss=ms"),
    ],
)
def test_the_recorded_command_is_complete(typed, recorded, monkeypatch):
    """The command line holds no name of a command while one is at work."""
    monkeypatch.setattr("sys.argv", typed.split())
    with _masked_command_line():
        assert sys.argv == recorded.split()
    assert sys.argv == typed.split()


@pytest.mark.pictures
def test_one_model_is_one_run(prepared, service, capsys):
    cfg, folder = prepared("experiment.id=mft_table1", "tracking.tags=[mine]")
    summary = start(cfg)
    (name,) = service.ids()
    assert name == folder.run_id()
    (options,) = service.inits(name)
    expected = {"group": "mft_table1", "job_type": "repeat0-fold0", "project": "dml-benchmark"}
    assert options.items() >= expected.items()
    assert options["tags"] == ["digits", "traditional", "stand-in", "mine"]
    expected = {"result_id": "mf_cwms", "repeat": 0, "fold": 0}
    assert options["config"]["run"].items() >= expected.items()
    assert "tracking" not in options["config"]
    assert service.rows(name) == history_of(folder.path)
    assert [row["_step"] for row in service.rows(name)] == [0, 7, 14, 21]
    pictures = {f"figures/{path.stem}": f"image {path.name}" for path in folder.pictures()}
    assert service.pictures(name) == pictures != {}
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
        ("before_rename:10", 0, 0),  # a row is sent that the checkpoint does not know
        ("between_checkpoints:3", 2, 0),  # W&B has not received the last rows
        pytest.param("wandb_log:5", 0, 3, marks=pytest.mark.pictures),  # the row of figures
        ("wandb_finish:1", 0, 0),  # the run is finished, but not in W&B
    ],
)
@pytest.mark.promise(
    "guides/trackers.md", "a run is killed and continued: W&B and MLflow have every row once"
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


@pytest.fixture
def two_folds(service, tmp_path):
    """A run of two models whose first one has two rows of an earlier process."""
    history = History(tmp_path / "history.csv")
    for step in (0, 4):
        history.append({"repeat": 0, "fold": 0, "epoch": step / 4, "step": step, "map_at_r": 0.1})
    folds = [(0, 0), (0, 1)]
    info = RunInfo(
        tmp_path, "abc", "cub seed0", "mlrc", {"seed": 0}, folds, notify=lambda line: None
    )
    return info, history


RESULTS = [
    {"repeat": 0, "fold": f, "metrics": {"map_at_r": f / 10}, "best_epoch": f} for f in (0, 1)
]
TOTAL = {
    "metrics": {"map_at_r": {"mean": 0.05, "ci95": 0.01, "std": 0.1, "repeats": 2}},
    "concatenated": {
        "metrics": {"map_at_r": {"mean": 0.07, "ci95": None, "std": None, "repeats": 1}}
    },
}


def work(tracker, history):
    """Two folds side by side, told of their rows more than once."""
    for fold, epoch, score, step in ((1, 0.0, 0.2, 0), (0, 2.0, 0.3, 8)):
        row = {"repeat": 0, "fold": fold, "epoch": epoch, "map_at_r": score}
        history.append({**row, "step": step})
        tracker.log(row, step)
    for row in history.job_rows(0, 0):
        tracker.log(row, int(row["step"]))
    for result in RESULTS * 2:
        tracker.job_done(result)


def test_folds_are_runs_of_their_own(two_folds, service):
    info, history = two_folds
    tracker = WandbTracker()
    with track_run(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    ids = ["abc", "abc-repeat0-fold0", "abc-repeat0-fold1"]
    assert service.ids() == ids
    inits = [service.inits(name)[0] for name in ids]
    assert [len(service.inits(name)) for name in ids] == [1, 1, 1]
    assert [one["job_type"] for one in inits] == ["combined", "repeat0-fold0", "repeat0-fold1"]
    assert {one["group"] for one in inits} == {"mlrc"}
    assert [row["_step"] for row in service.rows(ids[1])] == [0, 4, 8]
    for fold in (0, 1):
        name = ids[1 + fold]
        assert service.rows(name) == history_of(info.folder, (0, fold))
        assert service.summary(name) == {"test/map_at_r": fold / 10, "best_epoch": fold}
    assert service.rows("abc") == []
    assert service.summary("abc") == {
        "combined/map_at_r": 0.05,
        "combined_ci95/map_at_r": 0.01,
        "concatenated/map_at_r": 0.07,
    }
    assert [service.exits(name) for name in ids] == [[0], [0], [0]]
    # Continued after all is done: nothing is opened again.
    with track_run(tracker, info):
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    assert [len(service.inits(name)) for name in ids] == [1, 1, 1]


@pytest.mark.promise(
    "guides/trackers.md",
    "a trial of a search is sent again: W&B and MLflow have it once, with the options of that "
    "trial",
)
def test_trials_weights_and_results_are_sent_once(two_folds, service):
    info, history = two_folds
    tracker = WandbTracker(artifacts=True)
    trial = {"number": 3, "state": "complete", "value": 0.5, "params": {"optim.lr": 0.1}}
    trial["options"] = {"optim.lr": 0.1, "seed": 7}
    with track_run(tracker, info):
        for _ in range(2):
            tracker.trial_done(trial)
        work(tracker, history)
        tracker.conclude(TOTAL, [])
    (init,) = service.inits("abc-trial3")
    assert (init["job_type"], init["group"]) == ("trial", "mlrc")
    assert init["config"]["run"]["trial"] == {"optim.lr": 0.1}
    assert init["config"]["optim"] == {"lr": 0.1}  # and not that of the run
    assert init["config"]["seed"] == 7
    assert service.summary("abc-trial3") == {"trial": 3, "state": "complete", "score": 0.5}
    sent = json.loads((service.folder / "abc-repeat0-fold1/artifact.json").read_text())
    assert sent["path"].endswith("checkpoints/repeat0-fold1/best.pt")
    assert sent["type"] == "model"
    (table,) = service.pictures("abc").values()
    assert ["combined/map_at_r", 0.05] in table["data"]


def test_a_config_of_wandb_has_no_options_of_other_trials(two_folds, service):
    info, history = two_folds
    config = {"optim": {"lr": 1.0, "args": {"eps": 2.0}}, "loss": {"margin": 3.0}}
    before = copy.deepcopy(config)
    info = replace(info, config=config)
    trials = [{"optim.lr": 0.1, "optim.args.eps": 0.2}, {"loss.margin": 0.3}]
    tracker = WandbTracker()
    with track_run(tracker, info):
        for number, params in enumerate(trials):
            trial = {"number": number, "state": "complete", "value": 0.5, "params": params}
            tracker.trial_done(trial)
        work(tracker, history)
    first, second = (service.inits(f"abc-trial{number}")[0]["config"] for number in (0, 1))
    assert (first["optim"], first["loss"]) == ({"lr": 0.1, "args": {"eps": 0.2}}, before["loss"])
    assert (second["optim"], second["loss"]) == (before["optim"], {"margin": 0.3})
    (model,) = service.inits("abc-repeat0-fold0")
    assert {name: model["config"][name] for name in before} == before


def test_a_run_after_a_lost_connection_is_sent(two_folds, service, monkeypatch):
    info, history = two_folds
    tracker = WandbTracker()
    with monkeypatch.context() as patch:
        patch.delattr(Service, "init")
        with track_run(tracker, info):
            work(tracker, history)
    assert service.ids() == []
    with track_run(tracker, info):
        for result in RESULTS:
            tracker.job_done(result)
    for fold in (0, 1):
        assert service.rows(f"abc-repeat0-fold{fold}") == history_of(info.folder, (0, fold))
