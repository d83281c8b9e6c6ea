import json

import pytest

from scripts.wandb_dashboard import main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the library's own
pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is an extra")


def printed(capsys, *words):
    assert main([*words, "--dry-run"]) == 0
    return json.loads(capsys.readouterr().out)


def test_curves_per_loss(capsys):
    made = printed(capsys, "team", "--experiment", "mft_table1")
    assert (made["entity"], made["project"]) == ("team", "dml-benchmark")
    assert made["name"] == "MAP@R by run.result_id, mft_table1"
    curves, finals, pictures = made["spec"]["section"]["panelBankConfig"]["sections"]
    first = curves["panels"][0]
    assert first["viewType"] == "Run History Line Plot"
    assert first["config"]["metrics"] == ["map_at_r"]
    assert first["config"]["xAxis"] == "epoch"
    assert first["config"]["groupAgg"] == "mean"
    assert finals["panels"][0]["config"]["metrics"] == ["test/map_at_r"]
    assert pictures["panels"][0]["config"]["mediaKeys"] == ["figures/neighbors"]
    (runs,) = made["spec"]["section"]["runSets"]
    assert runs["grouping"] == [{"section": "config", "name": "run.value.result_id"}]
    (only,) = runs["filters"]["filters"]
    assert (only["key"]["name"], only["op"], only["value"]) == ("group", "=", "mft_table1")


def test_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "wandb_workspaces", None)
    assert main(["team", "--dry-run"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "pip install -e '.[wandb]'" in line
