import csv
import itertools
import math
from collections import Counter
from functools import wraps

import numpy as np
import pytest
import torch
from torch import nn

from dml.config.check import check
from dml.core.errors import RunStopped, UserError
from dml.data.image_index import ImageIndex
from dml.data.samplers import RandomBatches
from dml.losses import MeanFieldContrastiveLoss
from dml.methods.plain import Plain
from dml.models.embedder import NORMALIZERS
from dml.runs import embeddings
from dml.runs.context import JobModel, RunContext
from dml.runs.resource_errors import translate_resource_errors
from dml.training.stopping import Stopping
from tests.runs.small_runs import SMALL, rows


def test_loss_parameters_are_trained_and_saved(kept_states, run_tiny):
    _, folder = run_tiny("loss=proxy_anchor")
    job = folder / "checkpoints" / "repeat0-fold0"
    best = torch.load(job / "best.pt", weights_only=True)
    last = torch.load(job / "last.pt", weights_only=True)
    assert best["method"]["loss.proxies"].shape == (5, 8)
    names = [group["name"] for group in last["optimizer"]["param_groups"]]
    assert names == ["backbone", "head", "loss"]
    assert math.isclose(last["optimizer"]["param_groups"][2]["lr"], 100 * 3e-3)


def test_a_finished_run_keeps_its_best_weights_alone(run_tiny):
    _, folder = run_tiny("protocol.epochs=1")
    assert [path.name for path in folder.rglob("*.pt")] == ["best.pt"]


def test_a_network_that_maps_all_images_to_one_point_is_reported(run_tiny, monkeypatch, capsys):
    monkeypatch.setitem(NORMALIZERS, "l2", lambda v_BD: 0 * v_BD + 1)
    summary, folder = run_tiny("loss=mfcont", "protocol.epochs=1")
    assert summary["jobs"][0]["collapsed"] is True
    assert not any("collapsed" in part for part in (summary["metrics"], summary["untrained"]))
    assert "maps all images to one point" in " ".join(capsys.readouterr().out.split())
    assert [row["collapsed"] for row in rows(folder)] == ["1.0", "1.0"]


def test_loading_processes_wait_for_the_next_evaluation(run_tiny, monkeypatch, glyphs_root):
    sizes, make = [], embeddings.eval_batches

    def counted(subset, *arguments):
        sizes.append(len(subset))
        return make(subset, *arguments)

    monkeypatch.setattr(embeddings, "eval_batches", counted)
    run_tiny("loss=pfml", "evaluation.measures=[w2]", "protocol=holdout", "protocol.epochs=2",
             "protocol.evaluate_every=1", "evaluation.test_curve=true", "data=glyphs",
             "data.reader.classes=24", "data.reader.per_class=6",
             f"data.root={glyphs_root}")  # fmt: skip
    assert sorted(sizes) == [4 * 6, 8 * 6, 12 * 6]  # validation, training and test


def test_the_loss_is_built_once(run_tiny, monkeypatch):
    built, init = Counter(), MeanFieldContrastiveLoss.__init__

    @wraps(init)
    def counted(self, *arguments, **options):
        built["loss"] += 1
        init(self, *arguments, **options)

    monkeypatch.setattr(MeanFieldContrastiveLoss, "__init__", counted)
    run_tiny("loss=mfcont", "protocol.epochs=1")
    assert built["loss"] == 1


def test_the_time_before_a_stop_is_kept(run_tiny, tmp_path):
    with pytest.raises(RunStopped):
        run_tiny("max_minutes=1e-9")
    state = torch.load(next(tmp_path.rglob("last.pt")), weights_only=True)
    assert state["step"] == 1
    assert state["seconds"] > 0


@pytest.mark.parametrize(
    "words",
    [
        (),  # test images select the epoch
        ("protocol=holdout",),
        ("protocol=holdout", "evaluation.test_curve=true"),
    ],
    ids=" ".join,
)
def test_a_run_that_was_stopped_scores_as_if_it_was_not(run_tiny, glyphs_root, tmp_path, words):
    small = ("loss=contrastive", "data=glyphs", "data.reader.classes=24",
             "data.reader.per_class=6", f"data.root={glyphs_root}", "protocol.epochs=2",
             "protocol.evaluate_every=1", *words)  # fmt: skip
    calm, calm_folder = run_tiny(*small, f"outputs={tmp_path}/calm")
    with pytest.raises(RunStopped):
        run_tiny(*small, "max_minutes=1e-9")
    continued, folder = run_tiny(*small)
    assert rows(folder) == rows(calm_folder)
    for part in ("metrics", "untrained", "best_epoch"):
        assert continued[part] == calm[part]


class Apart(torch.nn.Module):
    """Pushes images of a class apart: every score falls."""

    def forward(self, embeddings, labels):
        same = labels[:, None] == labels
        return (embeddings @ embeddings.T)[same].mean()


FROZEN = "embedder.freeze_batch_norm=true", "protocol.epochs=2", "optim.lr=0.03"


def test_a_run_that_was_stopped_knows_its_score_before_the_training(run_tiny, tmp_path, capsys):
    words = "loss=custom", f"loss._target_={__name__}.Apart", *FROZEN

    def epochs():
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]

    run_tiny(*words, f"outputs={tmp_path}/calm")
    untrained, *calm = epochs()
    with pytest.raises(RunStopped):
        run_tiny(*words, "max_minutes=1e-9")
    assert epochs() == [untrained]
    run_tiny(*words)
    assert epochs() == calm
    assert "below untrained" in calm[0]


def test_memory_and_workers_for_which_torch_has_no_exceptions():
    with (
        pytest.raises(UserError, match="the machine's memory is full"),
        translate_resource_errors(),
    ):
        torch.empty(2**60)
    text = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
    message = r"died \(is killed by signal: Bus error\); where memory"
    with pytest.raises(UserError, match=message), translate_resource_errors():
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="shapes differ"), translate_resource_errors():
        raise RuntimeError("shapes differ")


class Empty(torch.nn.Module):
    """A loss that learns from the first batch only."""

    def __init__(self, steps=1):
        super().__init__()
        self.steps, self.step = steps, 0

    def forward(self, x, y):
        self.step += 1
        return x.square().mean() if self.step <= self.steps else 0


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.promise(
    "guides/resume.md",
    "a loss returns 0 without a graph for a batch: the step is that of zero gradients, and the "
    "history counts it",
)
def test_steps_of_an_empty_loss_are_counted(run_tiny, steps, capsys):
    words = ["loss=custom", f"loss._target_={__name__}.Empty", f"+loss.steps={steps}"]
    _, folder = run_tiny(*words, "protocol.epochs=2", "protocol.steps_per_epoch=3")
    rows = list(csv.DictReader((folder / "history.csv").open()))
    assert [row["empty_steps"] for row in rows] == ["", str(3 - steps), "3"]
    if not steps:
        assert float(rows[1]["loss"]) == 0
    out = capsys.readouterr().out
    assert out.count("all 3 steps") == 2 - steps
    assert "3 empty steps" in out


def test_other_histories_have_no_column_of_empty_steps(run_tiny):
    _, folder = run_tiny("protocol.epochs=1", "protocol.steps_per_epoch=1")
    assert "empty_steps" not in (folder / "history.csv").read_text()


HOLDOUT = ("protocol=holdout", "loss=contrastive", "protocol.epochs=6")


def test_the_best_weights_are_tested_and_not_the_last(run_tiny, evaluated, monkeypatch):
    monkeypatch.setattr(Stopping, "is_better", lambda self, score: self.best_step == 0)
    summary, folder = run_tiny(*HOLDOUT)
    _, first, *_, final = (float(row["epoch"]) for row in rows(folder))
    assert summary["best_epoch"] == [first]
    best = evaluated(f"run={folder}")["metrics"]
    for name in ("map_at_r", "precision_at_1"):
        assert summary["metrics"][name]["mean"] == pytest.approx(best[name], abs=1e-9)
    monkeypatch.setattr(Stopping, "is_better", lambda self, score: True)
    last, _ = run_tiny(*HOLDOUT, "overwrite=true")
    assert last["best_epoch"] == [final]
    assert last["metrics"] != summary["metrics"]  # a test of the last weights would be seen


def test_where_test_images_select_the_epoch_its_scores_are_those_of_the_run(run_tiny, monkeypatch):
    monkeypatch.setattr(Stopping, "is_better", lambda self, score: self.best_step == 0)
    summary, folder = run_tiny("loss=contrastive", "protocol.epochs=4")
    _, first, *_, last = rows(folder)
    assert summary["best_epoch"] == [float(first["epoch"])]
    for name in ("map_at_r", "precision_at_1"):
        assert summary["metrics"][name]["mean"] == pytest.approx(float(first[name]), abs=1e-9)
        assert first[name] != last[name]


def test_weights_batches_and_augmentations_follow_seed_repeat_and_fold(composed, tmp_path):
    """No two models of a run, and none of runs with other seeds, begin alike."""
    begun, augmented = [], {}
    for seed in (0, 1):
        words = (*SMALL, "protocol.repeats=2", "loss=proxy_anchor", f"seed={seed}")
        cfg = composed(*words)
        context = RunContext(check(cfg))
        for job in context.jobs:
            model = JobModel(context, job)
            weights = torch.cat([p.flatten() for p in model.embedder.parameters()])
            proxies = torch.cat([p.flatten() for p in model.method.parameters()])
            images, _ = next(iter(model.whole_batches()))
            begun.append((weights.detach(), proxies.detach(), images))
            model.schedule = RandomBatches(job.train.labels, 8, seed=0)
            same_images, _ = next(iter(model.whole_batches()))
            augmented.setdefault(job.fold, []).append(same_images)
    assert len(begun) == 2 * 2 * 4
    for first, second in itertools.combinations(begun, 2):
        assert not any(map(torch.equal, first, second))
    for of_fold in augmented.values():
        for first, second in itertools.combinations(of_fold, 2):
            assert not torch.equal(first, second)


def test_images_that_a_pool_draws_twice_are_augmented_differently(composed, glyphs_root):
    words = (*SMALL, "method=ccp", "loss=c1", f"data.root={glyphs_root}")
    context = RunContext(check(composed(*words)))
    model, pools = JobModel(context, context.jobs[0]), []
    model.method.attach = pools.append
    model.attach_method()
    batches = pools[0](2 * 6, 0)  # of six images a class
    images = torch.cat([part for part, _ in batches])
    assert len(images.unique(dim=0)) == len(images) == 12 * context.jobs[0].train.num_classes


class LateFailure(nn.Module):
    """A network of a user that fails after it was tried, in training or in evaluation mode."""

    def __init__(self, training, weights, input_size, width):
        super().__init__()
        self.layer, self.at, self.calls = nn.Conv2d(3, width, 3), training, 0

    def forward(self, images):
        self.calls += self.training == self.at
        if self.calls > 1 and len(images) > 2:
            raise KeyError("no such image")
        return self.layer(images).mean((2, 3))


@pytest.mark.parametrize("training", [True, False])
def test_a_failure_of_a_custom_network_is_a_line_with_its_place(run_tiny, training):
    words = [f"backbone._target_={__name__}.LateFailure"]
    with pytest.raises(UserError, match=r"your code failed: KeyError: .*\(test_job.py, line \d+\)"):
        run_tiny(*words, f"+backbone.training={training}", "protocol.epochs=1")


def read_failing(root):
    """Images of a user, one of which cannot be had."""

    class Images(list):
        def __getitem__(self, row):
            return super().__getitem__(row) if row < 70 else {}["no such image"]

    images = Images(np.zeros((80, 8, 8, 3), np.uint8))
    labels = np.arange(80) // 10
    return ImageIndex("failing", images, labels, np.where(labels < 4, "train", "test"))


def test_a_failure_of_images_of_a_custom_reader_is_a_line_with_its_place(run_tiny):
    words = ["data=custom", "backbone=small_cnn", f"data.reader._target_={__name__}.read_failing"]
    with pytest.raises(UserError, match=r"your code failed: KeyError: .*\(test_job.py, line \d+\)"):
        run_tiny(
            *words,
            "data.batch_size=8",
            "transform.size=8",
            "transform.test_resize=8",
            "protocol.epochs=1",
        )


class Extra(Plain):
    """A method of a user that logs a Python number, and something at each evaluation."""

    def __init__(self, loss, extra):
        super().__init__(loss)
        self.extra = extra

    def forward(self, embedder, images, labels):
        loss, _ = super().forward(embedder, images, labels)
        return loss, {"images": len(images)}

    def on_evaluation(self, embedder, score):
        return {"none": None, "text": {"a": "b"}, "number": {"a": 2}}[self.extra]


def test_numbers_of_a_custom_method_are_logged_and_other_objects_refused(run_tiny):
    words = ["method=custom", f"method._target_={__name__}.Extra", "protocol.epochs=1"]
    _, folder = run_tiny(*words, "+method.extra=number")
    last = list(csv.DictReader((folder / "history.csv").open()))[-1]
    assert float(last["a"]) == 2
    assert float(last["images"]) > 1
    for extra in ("none", "text"):
        with pytest.raises(UserError, match="method: on_evaluation must return a dict of numbers"):
            run_tiny(*words, f"+method.extra={extra}")
