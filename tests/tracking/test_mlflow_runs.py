"""What MLflow has of whole runs, in a database and on servers of all kinds."""

from __future__ import annotations

import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

import pandas as pd
import pytest

from dml.config.check import check
from dml.runs.folder.run_folder import RunFolder
from dml.runs.training_status import TrainingStatus
from dml.tracking import mlflow, patient
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.system.finished_runs import start
from tests.tracking.mlflow_store import Server, Store, check_curves

pytestmark = [
    pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow"),
    pytest.mark.usefixtures("mlflow_surroundings"),
]


@pytest.fixture(scope="module")
def server(empty_database, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_database, folder / "mlflow.db")
    local = Server(folder / "mlflow.db")
    yield local
    local.stop()


@pytest.fixture
def prepared(composed, tmp_path):
    """The config and folder of a run that was not started yet."""

    def prepare(*overrides):
        places = (f"outputs={tmp_path}/outputs", "tracking=mlflow")
        cfg = composed(*TINY, "protocol.epochs=3", *places, *overrides)
        return cfg, RunFolder.of(check(cfg))

    return prepare


def test_one_model_is_one_run(prepared, store, capsys):
    cfg, folder = prepared(
        "experiment.id=mft_table1", "+tracking.tags.team=vision", "name=mine", "note=a note"
    )
    summary = start(cfg)
    (run,) = store.runs()
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mine")
    expected = {
        "result_id": "mf_cwms",
        "protocol_id": "traditional",
        "stand_in": "true",
        "job_type": "repeat0-fold0",
        "repeat": "0",
        "group": "mft_table1",
        "team": "vision",
        "labels": "digits, traditional, stand-in",
        "mlflow.note.content": "a note",
        "digest": folder.path.name.rpartition("-")[2],
    }
    assert run.data.tags.items() >= expected.items()
    assert run.data.tags.get("mlflow.source.git.commit") == summary["git_revision"]
    params = {"optim.lr": "0.003", "data.images_per_class": "null", "protocol.name": "traditional"}
    assert run.data.params.items() >= {**params, "optim.args.betas": "[0.9, 0.999]"}.items()
    assert not [name for name in run.data.params if name.startswith(("tracking", "run."))]
    check_curves(store, run, folder.path)
    assert [step for step, _ in store.curve(run, "map_at_r")] == [0, 7, 14, 21]
    best = summary["metrics"]["map_at_r"]["mean"]
    assert store.curve(run, "test/map_at_r") == [(0, best)]
    assert run.data.metrics["untrained/recall_at_1"] == summary["untrained"]["recall_at_1"]["mean"]
    assert run.data.metrics["images_per_second"] == summary["images_per_second"]
    assert run.data.metrics["best_epoch"] == summary["jobs"][0]["best_epoch"]
    assert run.data.metrics["wall_seconds"] == summary["wall_seconds"]
    assert store.files(run) == {"config.yaml", "summary.json"}
    shown = capsys.readouterr().out.replace("\n", "")
    assert f"mlflow ui --backend-store-uri {store.uri}" in shown
    start(cfg)  # finished, and MLflow has it all
    (again,) = store.runs()
    assert again.info.end_time == run.info.end_time


FAULTS = ["before_rename:10", "between_checkpoints:3"]  # a row is sent that no checkpoint knows


@pytest.mark.parametrize("point", FAULTS)
@pytest.mark.promise(
    "guides/trackers.md", "a run is killed and continued: W&B and MLflow have every row once"
)
def test_a_killed_run_continues_without_gap_or_repeat(prepared, store, point):
    cfg, folder = prepared()
    assert die_at(point, start, cfg) != 0
    start(cfg)
    (run,) = store.runs()
    check_curves(store, run, folder.path)
    assert run.info.status == "FINISHED"


def test_a_search_then_its_training(prepared, store):
    options = ("protocol=validation", "search=bayes", "search.trials=2", "protocol.epochs=1")
    cfg, folder = prepared(*options)
    summary = start(cfg)
    parts = store.parts()
    assert set(parts) == {"main", "trial0", "trial1"}
    best, main = summary["search"]["params"], parts["main"]
    assert float(main.data.params["loss.alpha"]) == best["loss.alpha"]  # and not the default
    assert main.data.tags["job_type"] == "repeat0-fold0"
    check_curves(store, main, folder.path)
    trials = pd.read_csv(folder.path / "search" / "trials.csv")
    scores = [parts[f"trial{number}"].data.metrics["score"] for number in (0, 1)]
    assert scores == pytest.approx(trials["value"].tolist())


def test_a_grid_is_a_run_for_each_job(command_line, store, tmp_path):
    words = [word for word in TINY if not word.startswith("protocol")]
    options = ("protocol.epochs=1", "tracking=mlflow", f"outputs={tmp_path}/outputs")
    status, _, err = command_line("-m", *words, *options, "seed=0,1")
    assert status == 0, err
    assert [run.data.params["seed"] for run in store.runs()] == ["0", "1"]
    assert {run.info.status for run in store.runs()} == {"FINISHED"}


def test_overwriting_begins_another_run(prepared, store):
    start(prepared("protocol.epochs=1")[0])
    start(prepared("protocol.epochs=1", "overwrite=true")[0])
    first, second = store.runs()
    assert first.data.tags["dml.run"] != second.data.tags["dml.run"]
    assert store.curve(first, "map_at_r") == store.curve(second, "map_at_r")


def on_epoch(monkeypatch, actions):
    """Calls a function after the row of an epoch."""
    show = TrainingStatus.show_evaluation

    def show_and_act(self, row):
        show(self, row)
        actions.get(row["epoch"], lambda: None)()

    monkeypatch.setattr(TrainingStatus, "show_evaluation", show_and_act)


@pytest.mark.promise(
    "guides/trackers.md",
    "MLflow's server goes away during a training run: a note says so, the run goes on, and MLflow "
    "gets the missing rows when it is back",
)
def test_a_server_that_goes_away_and_comes_back(prepared, server, monkeypatch, capsys):
    monkeypatch.setattr(mlflow, "RETRY_SECONDS", 0.0)
    on_epoch(monkeypatch, {1: server.stop, 3: server.start})
    options = ("tracking.artifacts=true", "tracking.experiment='of a server'", "protocol.epochs=4")
    cfg, folder = prepared(f"tracking.uri={server.uri}", *options)
    start(cfg)
    store = Store(server.uri)
    (run,) = store.runs("of a server")
    check_curves(store, run, folder.path)
    assert run.info.status == "FINISHED"
    assert store.files(run) == {"config.yaml", "summary.json", "checkpoints"}
    assert store.files(run, "checkpoints") == {"checkpoints/best.pt"}
    out = capsys.readouterr().out
    address = f"{server.uri}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}"
    assert out.replace("\n", "").count(address) == 1
    assert "View run" not in out
    out = " ".join(out.split())
    assert out.count(f"MLflow at {server.uri} failed (ConnectionRefusedError: ") == 1
    assert out.count("MLflow works again, and has") == 1


@pytest.mark.promise(
    "guides/trackers.md",
    "MLflow's server does not exist or refuses: a note says so, the run goes on, and the same "
    "command sends the rows",
)
def test_a_server_that_is_not_there(prepared, store, monkeypatch, capsys):
    uri = "http://me:planted-password@127.0.0.1:9"
    cfg, folder = prepared(f"tracking.uri='{uri}'")
    summary = start(cfg)
    assert summary["metrics"]
    out, err = capsys.readouterr()
    assert " ".join(out.split()).count("MLflow at http://me:***@127.0.0.1:9 failed") == 1
    assert "planted-password" not in out + err
    assert "Retrying" not in err
    start(prepared()[0])  # now into the database
    (run,) = store.runs()
    check_curves(store, run, folder.path)
    assert run.info.status == "FINISHED"


class Unauthorized(BaseHTTPRequestHandler):
    """A server that asks for a password."""

    def do_GET(self):
        self.send_error(401, "Unauthorized")

    def log_message(self, *words):
        pass


def test_a_server_that_refuses(prepared, capsys):
    with ThreadingHTTPServer(("127.0.0.1", 0), Unauthorized) as refusing:
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{refusing.server_port}"
        assert start(prepared(f"tracking.uri={uri}", "protocol.epochs=1")[0])["metrics"]
        refusing.shutdown()
    out = " ".join(capsys.readouterr().out.split())
    assert out.count(f"MLflow at {uri} failed (") == 1
    assert "401" in out


def test_a_server_that_answers_nothing_is_followed_by_the_run(prepared, monkeypatch, capsys):
    monkeypatch.setattr(patient, "PATIENCE", 0.01)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        cfg, _ = prepared(f"tracking.uri=http://127.0.0.1:{port}", "protocol.epochs=1")
        assert start(cfg)["metrics"]
    out = " ".join(capsys.readouterr().out.split())
    assert "MLflow has not answered for" in out
    assert "failed (TimeoutError: timed out)" in out


@pytest.mark.promise(
    "guides/trackers.md",
    "MLflow is not installed, or does not take an address, an experiment or a tag: one line says "
    "so before training",
)
@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("tracking.uri=htp://host", "tracking.uri: MLflow does not take 'htp://host' ("),
        ("tracking.uri=/some/folder", "maintenance mode"),
        ("tracking.uri=postgresql+none://me:pw@host/db", "tracking.uri: MLflow does not take '"),
        ("tracking.experiment=''", "tracking.experiment: '' has 0 characters"),
        (f"tracking.experiment={'a' * 501}", "has 501 characters; MLflow takes 1 to 500"),
        ("tracking.tags=[mine]", "tracking.tags: "),
    ],
)
def test_what_is_refused_before_training(command_line, tmp_path, option, reason):
    words = ("tracking=mlflow", option, f"outputs={tmp_path / 'o'}", "data=cub")
    status, _, err = command_line(*words)
    assert status != 0
    (line,) = err.strip().splitlines()
    assert line.startswith("error: tracking.")
    assert reason in line
    assert "me:pw" not in line
    assert not (tmp_path / "o").exists()
