"""What MLflow has after the calls of a run, read back from a database by its own client."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from importlib.util import find_spec

import pytest

from dml.core.errors import RunStopped, UserError
from dml.tracking import History, RunInfo, mlflow, track_run
from dml.tracking.mlflow import MLflowTracker
from tests.killed_process import die_at
from tests.tracking.mlflow_store import check_curves

pytestmark = [
    pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow"),
    pytest.mark.usefixtures("mlflow_surroundings"),
]


@pytest.mark.parametrize(
    ("method", "number"),
    [
        ("create_run", 1),
        ("log_batch", 1),  # some options are there
        ("log_batch", 5),  # the rows so far
        ("log_artifact", 2),  # half of the files
        ("set_terminated", 1),  # the run is finished, but not in MLflow
        ("set_tag", 1),  # it is, but not said to be complete
    ],
)
def test_a_kill_after_any_request(two_folds, store, method, number):
    """Two models, killed after a request has arrived; the same calls complete it."""
    info, history = two_folds

    def track_and_die():
        import mlflow

        request, calls = getattr(mlflow.MlflowClient, method), []

        def send_and_die(client, *words, **options):
            calls.append(request(client, *words, **options))
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return calls[-1]

        setattr(mlflow.MlflowClient, method, send_and_die)
        track(MLflowTracker(), info, history)

    assert die_at("", track_and_die) == -signal.SIGKILL
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)


@pytest.fixture
def two_folds(tmp_path):
    """A run of two models whose first one has two rows of an earlier process."""
    (tmp_path / "run" / "figures").mkdir(parents=True)
    for name in FILES:
        (tmp_path / "run" / name).write_text(name)
    history = History(tmp_path / "run" / "history.csv")
    for step in (0, 4):
        history.append({**ROW, "fold": 0, "epoch": step / 4, "step": step})
    config = {"seed": 0, "optim": {"lr": 1.0, "args": {"eps": 2.0}}, "loss": {"margin": 3.0}}
    info = RunInfo(
        tmp_path / "run", "abc", "cub seed0", "mlrc", config, [(0, 0), (0, 1)], notify=print
    )
    return info, history


FILES = ("config.yaml", "summary.json", "figures/map.png")
ROW = {"repeat": 0, "map_at_r": 0.1, "loss": 1 / 3}
RESULTS = [
    {"repeat": 0, "fold": fold, "metrics": {"map_at_r": fold / 10}, "best_epoch": fold}
    for fold in (0, 1)
]
TOTAL = {
    "metrics": {"map_at_r": {"mean": 0.05, "ci95": 0.01, "std": 0.1, "repeats": 2}},
    "wall_seconds": 3.5,
}
TRIALS = [
    {"number": 0, "state": "complete", "value": 0.5, "params": {"optim.lr": 0.1}},
    {"number": 1, "state": "pruned", "value": 0.2, "params": {"loss.margin": 0.3}},
    {"number": 2, "state": "fail", "value": None, "params": {"optim.args.eps": 5}},
]


def track(tracker, info, history):
    """Two folds side by side, told of their rows more than once."""
    with track_run(tracker, info):
        for fold, epoch, step in ((1, 0.0, 0), (0, 2.0, 8), (1, 1.0, 4)):
            row = {**ROW, "fold": fold, "epoch": epoch}
            if step not in {known["step"] for known in history.job_rows(0, fold)}:
                history.append({**row, "step": step})
            tracker.log(row, step)
        for row in history.job_rows(0, 0):
            tracker.log(row, int(row["step"]))
        for result in RESULTS * 2:
            tracker.job_done(result)
        tracker.conclude(TOTAL, [info.folder / FILES[-1]])


def check_two_folds(store, info, has_files=True):
    parts = store.parts()
    main, folds = parts["main"], [parts["repeat0-fold0"], parts["repeat0-fold1"]]
    for fold, run in enumerate(folds):
        check_curves(store, run, info.folder, (0, fold))
        assert store.curve(run, "test/map_at_r") == [(0, fold / 10)]
        assert run.data.tags["mlflow.parentRunId"] == main.info.run_id
        assert run.data.tags["fold"] == str(fold)
        assert run.info.run_name == f"cub seed0 repeat0-fold{fold}"
    assert store.curve(main, "combined/map_at_r") == [(0, 0.05)]
    assert store.curve(main, "combined_ci95/map_at_r") == [(0, 0.01)]
    assert "map_at_r" not in main.data.metrics
    params = {"seed": "0", "optim.lr": "1.0", "optim.args.eps": "2.0", "loss.margin": "3.0"}
    for run in (main, *folds):
        assert run.info.status == "FINISHED"
        assert run.data.params == params
    assert len(parts) == 3
    if has_files:
        assert store.files(main) == {"config.yaml", "summary.json", "figures"}
        assert store.files(main, "figures") == {"figures/map.png"}


def test_folds_are_children_of_a_run(two_folds, store):
    info, history = two_folds
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)
    before = [run.to_dictionary() for run in store.runs()]
    track(MLflowTracker(), info, history)  # continued after all is done: nothing changes
    assert [run.to_dictionary() for run in store.runs()] == before


@pytest.mark.promise(
    "guides/trackers.md",
    "a trial of a search is sent again: W&B and MLflow have it once, with the options of that "
    "trial",
)
def test_trials_are_children_with_their_options(two_folds, store):
    info, history = two_folds
    tracker = MLflowTracker()
    with track_run(tracker, info):
        for trial in TRIALS * 2:
            tracker.trial_done({**trial, "options": {"seed": 7}})
    assert store.parts()["main"].info.status == "RUNNING"  # its training follows
    assert store.parts()["main"].data.tags["job_type"] == "combined"
    assert store.parts()["main"].data.params == {}  # those of the best trial follow
    track(tracker, info, history)
    parts = store.parts()
    trials = [parts.pop(f"trial{number}") for number in range(3)]
    assert [run.data.metrics for run in trials] == [{"score": 0.5}, {"score": 0.2}, {}]
    assert [run.info.status for run in trials] == ["FINISHED", "FINISHED", "FAILED"]
    assert [run.data.tags["state"] for run in trials] == ["complete", "pruned", "fail"]
    for run, trial in zip(trials, TRIALS, strict=True):
        ((changed, value),) = trial["params"].items()
        assert run.data.tags["mlflow.parentRunId"] == parts["main"].info.run_id
        assert run.data.params["seed"] == "7"
        assert run.data.params[changed] == json.dumps(value)
    assert trials[1].data.params["optim.lr"] == "1.0"  # and not that of another trial


@pytest.mark.parametrize("order", [(0, 1, 0, 1, 0, 1), (0, 0, 1, 1, 0, 1)])
def test_processes_of_a_search_send_each_trial_once(two_folds, store, order):
    """Each sends the finished trials of all, as it sees them."""
    info, _ = two_folds
    trackers = MLflowTracker(), MLflowTracker()
    with track_run(trackers[0], info), track_run(trackers[1], info):
        for count, number in enumerate(order):
            for trial in TRIALS[: count // 2 + 1]:
                trackers[number].trial_done(trial)
    assert len(store.runs()) == len(store.parts()) == 4
    assert [store.parts()[f"trial{number}"].info.status for number in range(3)] == [
        "FINISHED",
        "FINISHED",
        "FAILED",
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [(UserError("x"), "FAILED"), (RunStopped("x", 75), "KILLED"), (RunStopped("x", 143), "KILLED")],
)
def test_how_a_run_ended_and_that_it_goes_on(two_folds, store, error, status):
    info, history = two_folds

    def log_row(tracker):
        tracker.log({**ROW, "fold": 0, "epoch": 1.0}, 4)
        assert {run.info.status for run in store.runs()} == {"RUNNING"}

    def fail(tracker):
        with track_run(tracker, info):
            log_row(tracker)
            raise error

    with pytest.raises(type(error)):
        fail(MLflowTracker())
    assert {run.info.status for run in store.runs()} == {status}
    continued = MLflowTracker()
    continued.start(info)
    log_row(continued)
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)


def test_names_and_values_that_mlflow_does_not_take(two_folds, store):
    info, _ = two_folds
    info.config["a"] = {"b@1": "é" * 9000, "../c": 2, "": 3, "d": {}, "e" * 300: [1, None]}
    info.config["note"] = "n" * 9000
    tracker = MLflowTracker(tags={"team": "t" * 9000, "flag": True})
    tracker.start(info)
    values = {"f1@5": 1.0, "a//b": 2.0, "/c/../d": float("nan"), "e": float("inf")}
    tracker.log({**ROW, "fold": 0, "epoch": 2.0, **values}, 8)
    run = store.parts()["repeat0-fold0"]
    assert run.data.params["a.b_1"] == "é" * 6000
    assert run.data.params["e" * 250] == "[1, null]"
    assert {"f1_5", "a/b", "d", "e"} <= set(run.data.metrics)
    assert run.data.tags["flag"] == "true"
    assert len(run.data.tags["team"]) == len(run.data.tags["mlflow.note.content"]) == 5000


class Refusing:
    """MLflow's client, of which a method fails."""

    def __init__(self, monkeypatch, method, error):
        import mlflow

        def fail(*words, **options):
            raise error

        monkeypatch.setattr(mlflow.MlflowClient, method, fail)


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("method", ["log_batch", "create_run", "search_runs", "set_terminated"])
def test_a_full_disk_is_a_note(two_folds, store, monkeypatch, capsys, method):
    info, history = two_folds
    with monkeypatch.context() as patch:
        Refusing(patch, method, FULL)
        track(MLflowTracker(), info, history)
    out = capsys.readouterr().out
    assert out.count("failed (OSError: No space left on device)") == 1
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_what_mlflow_misses_while_it_is_away(two_folds, store, monkeypatch, capsys, seconds):
    """The first model ends meanwhile; if MLflow is tried again, or at the end only."""
    monkeypatch.setattr(mlflow, "RETRY_SECONDS", seconds)
    info, history = two_folds
    tracker = MLflowTracker()
    with track_run(tracker, info):
        tracker.log({**ROW, "fold": 0, "epoch": 1.0}, 4)
        with monkeypatch.context() as patch:
            Refusing(patch, "log_batch", ConnectionError("away"))
            Refusing(patch, "search_runs", ConnectionError("away"))
            history.append({**ROW, "fold": 0, "epoch": 2.0, "step": 8})
            tracker.log({**ROW, "fold": 0, "epoch": 2.0}, 8)
            tracker.job_done(RESULTS[0])
            history.append({**ROW, "fold": 1, "epoch": 0.0, "step": 0})
            tracker.log({**ROW, "fold": 1, "epoch": 0.0}, 0)
        history.append({**ROW, "fold": 1, "epoch": 1.0, "step": 4})
        tracker.log({**ROW, "fold": 1, "epoch": 1.0}, 4)
        tracker.job_done(RESULTS[1])
        tracker.conclude(TOTAL, [info.folder / FILES[-1]])
    check_two_folds(store, info)
    assert capsys.readouterr().out.count("MLflow works again, and has the missing rows") == 1


@pytest.mark.promise(
    "guides/trackers.md",
    "MLflow does not take files, such as figures: it gets all scores, and the same command sends "
    "the files again",
)
def test_files_that_are_not_taken_cost_no_score(two_folds, store, monkeypatch, capsys):
    info, history = two_folds
    with monkeypatch.context() as patch:
        Refusing(patch, "log_artifact", PermissionError(13, "Access denied"))
        track(MLflowTracker(), info, history)
    assert "did not take the files of the run (PermissionError: Access denied)" in (
        capsys.readouterr().out
    )
    check_two_folds(store, info, has_files=False)
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)


@pytest.mark.promise(
    "guides/trackers.md",
    "an experiment was deleted in MLflow: a note says how to restore it; a deleted run is sent "
    "again by the same command",
)
def test_what_was_deleted(two_folds, store, capsys):
    info, history = two_folds
    track(MLflowTracker(), info, history)
    for run in store.runs():
        store.client.delete_run(run.info.run_id)
    track(MLflowTracker(), info, history)
    check_two_folds(store, info)
    experiment = store.runs()[0].info.experiment_id
    store.client.delete_experiment(experiment)
    capsys.readouterr()
    track(MLflowTracker(), info, history)
    out = capsys.readouterr().out
    assert f"mlflow experiments restore -x {experiment}`, or choose another name" in out
    track(MLflowTracker(experiment="another"), info, history)
    assert len(store.runs("another")) == 3


def test_a_run_that_is_deleted_meanwhile(two_folds, store, monkeypatch):
    monkeypatch.setattr(mlflow, "RETRY_SECONDS", 0.0)
    info, history = two_folds
    tracker = MLflowTracker()
    tracker.start(info)
    tracker.log({**ROW, "fold": 0, "epoch": 1.0}, 4)
    for run in store.runs():
        store.client.delete_run(run.info.run_id)
    tracker.log({**ROW, "fold": 0, "epoch": 2.0}, 8)  # fails
    history.append({**ROW, "fold": 0, "epoch": 2.0, "step": 8})
    history.append({**ROW, "fold": 0, "epoch": 3.0, "step": 12})
    tracker.log({**ROW, "fold": 0, "epoch": 3.0}, 12)  # is a new run
    check_curves(store, store.parts()["repeat0-fold0"], info.folder)


@pytest.mark.parametrize("tags", [["mine"], "mine", {"a@b": 1}, {"": 1}, {"a//b": 1}, {"../a": 1}])
def test_tags_that_mlflow_does_not_take(tags):
    with pytest.raises(UserError, match=r"^tracking\.tags: MLflow "):
        MLflowTracker(tags=tags)


def test_the_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"^tracking: .*mlflow.*; pip install mlflow, or tracking="):
        MLflowTracker()


@pytest.mark.promise(
    "guides/trackers.md", "`tracking=mlflow` sends nothing to anyone but your server"
)
def test_nothing_is_reported_to_the_makers_of_mlflow(store, monkeypatch):
    from mlflow.telemetry import utils

    monkeypatch.setattr(utils, "_IS_IN_CI_ENV_OR_TESTING", False)
    monkeypatch.delenv("DO_NOT_TRACK", raising=False)
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    assert not utils.is_telemetry_disabled()  # the default of MLflow
    MLflowTracker()
    assert utils.is_telemetry_disabled()
