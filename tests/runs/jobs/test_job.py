import csv
import math

import torch

from dml.models.embedder import NORMALIZERS


def rows(folder):
    with open(folder / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_loss_parameters_are_trained_and_saved(run_tiny):
    _, folder = run_tiny("loss=proxy_anchor")
    job = folder / "checkpoints" / "repeat0-fold0"
    best = torch.load(job / "best.pt", weights_only=True)
    last = torch.load(job / "last.pt", weights_only=True)
    assert best["method"]["loss.proxies"].shape == (5, 8)
    names = [group["name"] for group in last["optimizer"]["param_groups"]]
    assert names == ["backbone", "head", "loss"]
    assert math.isclose(last["optimizer"]["param_groups"][2]["lr"], 100 * 3e-3)


def test_a_network_that_maps_all_images_to_one_point_is_reported(run_tiny, monkeypatch, capsys):
    monkeypatch.setitem(NORMALIZERS, "l2", lambda v_BD: 0 * v_BD + 1)
    summary, folder = run_tiny("loss=mfcont", "protocol.epochs=1")
    assert summary["jobs"][0]["collapsed"] is True
    assert not any("collapsed" in part for part in (summary["metrics"], summary["untrained"]))
    assert "maps all images to one point" in " ".join(capsys.readouterr().out.split())
    assert [row["collapsed"] for row in rows(folder)] == ["1.0", "1.0"]


def test_bf16_trains(run_tiny):
    summary, folder = run_tiny("precision=bf16", "protocol.epochs=4", "loss=mfcont")
    losses = [float(row["loss"]) for row in rows(folder)[1:]]
    assert losses[-1] < losses[0]
    assert summary["precision"] == "bf16"
