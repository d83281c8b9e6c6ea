"""A server of W&B that is a folder, and databases of MLflow."""

from __future__ import annotations

import shutil

import pytest

from dml.tracking import mlflow
from tests.tracking.mlflow_store import Store
from tests.tracking.wandb_stand_in import Service


@pytest.fixture
def service(tmp_path, monkeypatch) -> Service:
    stand_in = Service(tmp_path / "server")
    monkeypatch.setitem(__import__("sys").modules, "wandb", stand_in)
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)
    return stand_in


@pytest.fixture
def mlflow_surroundings(monkeypatch, tmp_path):
    """Files land in the folder of the test, and a failed request is not repeated."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in mlflow.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """A database without runs; making its tables takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Store(f"sqlite:///{path}").client.search_experiments()
    return path


@pytest.fixture
def store(mlflow_surroundings, empty_database, tmp_path, monkeypatch):
    """A database, which is the default."""
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return Store(uri)
