"""Estimates of GPU hours, by hand and where they are unknown."""

from __future__ import annotations

import math
import sys

import pytest

from dml.config.check import check
from dml.config.compositions import compose_config
from dml.core.errors import ConfigError
from dml.results.catalog import list_cells
from dml.results.plan import (
    estimate_gigabytes,
    estimate_hours,
    estimate_training_hours,
    hours_left,
    plan_frame,
)
from tests.commands import plan as plan_command


def test_a_plan_may_be_of_another_machine(capsys, monkeypatch):
    """A cluster's login node has no GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert plan_command(["mft_table2", "data=cub", "device=cuda:3"]) == 0
    assert "10 training runs" in capsys.readouterr().out
    assert plan_command(["mft_table2", "data=cub", "device=gpu"]) == 2
    assert "must be auto, cpu, cuda or cuda:<n>" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="needs a GPU, and this machine has none"):
        check(compose_config(["data=cub", "device=cuda"]))


def test_own_reader_of_the_current_folder(tmp_path, monkeypatch, capsys):
    """As in training, its module is found, and says how many images it trains on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "birds_of_mine.py").write_text("TRAIN_IMAGES = 1000\n")
    reader = "data.reader._target_=birds_of_mine.read"
    assert plan_command(["mft_table2", "data=custom", reader, "data.root=."]) == 0
    assert "unknown" not in capsys.readouterr().out


def test_hours_by_hand(composed):
    # 60 epochs at most, but patience 5 × 5 evaluations: 25 epochs of 45 batches of 128 images,
    # each with an evaluation of 5,924 images, at 1200 images per second with TF32
    cub = ("data=cub", "protocol=traditional")
    trained, evaluated = 25 * 45 * 128, 25 * 5924 / 3
    exact = estimate_training_hours(composed(*cub))
    assert exact == pytest.approx((trained + evaluated) / 600 / 3600)
    for option in ("speed=fast", "precision=tf32"):
        assert estimate_training_hours(composed(*cub, option)) == pytest.approx(exact / 2)
    # four mixes of the input in every step: 1 + 3 passes
    mixed = composed(*cub, "method=metrix", "loss=ms", "method.types=[input]")
    assert estimate_training_hours(mixed) == pytest.approx(exact + 3 * trained / 600 / 3600)


def test_patience_counts_epochs_or_evaluations(composed):
    """Five times the patience: an evaluation is every two epochs here."""
    words = ("data=cub", "protocol=traditional", "device=cpu", "backbone=small_cnn",
             "protocol.epochs=60", "protocol.steps_per_epoch=10", "protocol.evaluate_every=2",
             "protocol.evaluate_unit=epochs", "protocol.stopping.patience=4")  # fmt: skip
    for unit, epochs in (("epochs", 20), ("evaluations", 40)):
        cfg = composed(*words, f"protocol.stopping.unit={unit}")
        expected = epochs * 10 * cfg.data.batch_size / 600 / 3600
        assert estimate_training_hours(cfg) == pytest.approx(expected)
    mixed = composed(*words, f"protocol.stopping.unit={unit}", "method=imix", "loss=contrastive")
    assert estimate_training_hours(mixed) == pytest.approx(2 * expected)


def test_disk_space_is_that_of_all_models():
    """Four bytes for each of 10.3 million parameters, of two repeats of four folds."""
    words = ["data=cub", "loss=mfcwms", "protocol.repeats=2"]
    (cell,) = list_cells("mft_table1", words)
    assert cell.trainings >= 8
    assert estimate_gigabytes(cell) == pytest.approx(2 * 4 * 4 * 10.3e6 / 1e9)


@pytest.mark.parametrize(("protocol", "validated"), [("mlrc", 1 / 4), ("holdout", 1 / 3)])
def test_validation_costs_the_images_that_are_not_trained_on(composed, protocol, validated):
    words = ("data=cub", f"protocol={protocol}", "protocol.epochs=6", "precision=tf32",
             "protocol.steps_per_epoch=40", "protocol.stopping.patience=null",
             "protocol.evaluate_unit=epochs")  # fmt: skip
    often = estimate_training_hours(composed(*words, "protocol.evaluate_every=1"))
    seldom = estimate_training_hours(composed(*words, "protocol.evaluate_every=3"))
    evaluated = (6 - 2) * validated * 5864 / 3
    assert often - seldom == pytest.approx(evaluated / 1200 / 3600, rel=1e-3)


def test_steps_need_no_size_of_the_dataset(composed):
    cfg = composed("data=glyphs", "protocol.steps_per_epoch=20", "protocol.epochs=3")
    assert estimate_training_hours(cfg) == pytest.approx(3 * 20 * 32 / 10000 / 3600)


def test_without_training_the_evaluated_images_pass_once():
    words = ["data=cub", "backbone.model=vit_small_patch16_224.dino"]
    (cell,) = list_cells("off_the_shelf", words)
    once = 5924 / 3 / 450 / 3600  # exact float32 is half as fast
    assert estimate_hours(cell) == pytest.approx(once)
    (cell,) = list_cells("off_the_shelf", [*words, "protocol.repeats=3", "speed=fast"])
    assert estimate_hours(cell) == pytest.approx(3 * once / 2)


@pytest.mark.parametrize(
    "words", [["data=folder", "data.root=images"], ["data=cub", "backbone.model=resnet10t"]]
)
def test_without_training_unknown_images_or_networks_have_unknown_hours(words):
    cells = list_cells("off_the_shelf", words)
    assert [estimate_hours(cell) for cell in cells] == [None] * len(cells)


@pytest.mark.parametrize(
    ("model", "time"),
    [("vit_small_patch16_224.dino", "about 0:00:04"), ("resnet10t", "unknown time")],
)
def test_a_plan_of_a_network_without_training_says_what_is_done(model, time, capsys):
    words = ["data=cub", f"backbone.model={model}", "protocol.epochs=0"]
    assert plan_command(["off_the_shelf", *words]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.endswith(f"[no training; embedding of the test images alone: {time}]")


def test_a_plan_names_the_budget_that_the_user_has_changed(capsys):
    assert plan_command(["mft_table12", "loss.alpha=40", "protocol.epochs=3"]) == 0
    assert "[reduced: protocol.epochs=3]" in capsys.readouterr().out
    assert plan_command(["mft_table12", "loss.alpha=40"]) == 0
    assert "reduced" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "device"),
    [([], "one data-center GPU (A100 or newer, with TF32)"), (["device=cpu"], "one CPU core")],
)
def test_a_plan_names_the_device_of_its_hours(words, device, capsys):
    assert plan_command(["mft_table2", "data=cub", "loss=mfcwms", *words]) == 0
    assert f"\nhours are estimated for {device}\n" in capsys.readouterr().out


def test_a_plan_measures_finished_runs(tmp_path):
    plan = plan_frame("mft_table12", ["data=digits", "scale=standin"], str(tmp_path))
    assert set(plan.status) == {"missing"}
    cells = list_cells("mft_table12", ["data=digits", "scale=standin", f"outputs={tmp_path}"])
    for cell in cells[:2]:
        cell.folder.mkdir(parents=True)
        (cell.folder / "config.yaml").touch()
    (cells[0].folder / "summary.json").write_text('{"wall_seconds": 7200}')
    plan = plan_frame("mft_table12", ["data=digits", "scale=standin"], str(tmp_path))
    assert list(plan.status[:3]) == ["done", "started", "missing"]
    assert plan.measured.sum() == 2
    # equal cells: each of the others takes two hours as well
    assert hours_left(plan) == pytest.approx(2 * (len(plan) - 1))


def test_a_sum_with_an_unknown_part_is_unknown():
    plan = plan_frame("mft_table12", ["backbone=timm", "backbone.model=resnet10t"])
    assert plan.estimated.isna().all()
    assert math.isnan(hours_left(plan))


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (
            ["seed=abc", "device=nope", "protocol.epochs=-inf"],
            ["seed: 'abc'", "device: 'nope'", "protocol.epochs: -Infinity"],
        ),
        (["=1"], ["=1: not of the form"]),
        (["loss=null"], ["loss: 'null' does not exist"]),
        (["protocol.splits=foo"], ["protocol.splits: 'foo' must be"]),
        (["data=cub", "data=sop"], ["data: chosen twice"]),
        (["experiment=mft_table2"], ["experiment: chosen twice"]),
    ],
)
def test_wrong_options_are_a_line_each(words, messages, capsys):
    assert plan_command(["mft_table12", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("words", "cores", "notes"),
    [(["device=cpu"], 4, 1), (["device=cpu"], 1, 0), ([], 4, 0), (["device=auto"], 4, 0)],
)
def test_a_plan_on_a_cpu_says_how_its_cores_are_used(monkeypatch, capsys, words, cores, notes):
    monkeypatch.setattr("dml.core.processor.available_cores", lambda: cores)
    assert plan_command(["mft_table12", *words]) == 0
    output = capsys.readouterr().out
    assert output.count("note: 4 cores are used best by 4 runs") == notes
    assert output.count("hydra.launcher.n_jobs=4, or protocol.workers=4") == notes
