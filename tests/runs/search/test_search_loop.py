"""Searches that are killed, shared and failing end as undisturbed ones would."""

import json
import math
import multiprocessing
import statistics
from typing import ClassVar

import pandas as pd
import pytest
from omegaconf import OmegaConf
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from dml.config.check import check
from dml.config.options import format_value
from dml.config.presets import extract_params
from dml.core.errors import UserError
from dml.runs import experiment
from dml.runs.context import RunContext
from dml.runs.search import search_loop
from dml.tracking import Tracker
from tests.conftest import compose_config
from tests.killed_process import KILLED, die_at
from tests.runs.small_runs import essence
from tests.system.finished_runs import start


class TrackedTrials(Tracker):
    """Keeps the numbers of the trials that it receives."""

    trials: ClassVar[dict[int, dict]] = {}

    def trial_done(self, trial):
        assert trial["params"]
        self.trials[trial["number"]] = trial


def trials(folder):
    """(number, state, value, parameters) of all trials, as any reader of the journal sees them."""
    storage = JournalStorage(JournalFileBackend(str(folder.journal)))
    (study,) = storage.get_all_studies()
    found = storage.get_all_trials(study._study_id)
    return [(t.number, t.state.name, t.value, t.params) for t in found]


@pytest.fixture(scope="module")
def undisturbed():
    return {}


def expected(undisturbed, prepared):
    if not undisturbed:
        tracker = f"tracking._target_={__name__}.TrackedTrials"
        cfg, folder = prepared(tracker, name="undisturbed")
        start(cfg)
        undisturbed["trials"], undisturbed["essence"] = trials(folder), essence(folder.path)
        undisturbed["folder"] = folder
        undisturbed["summary"] = json.loads(folder.summary.read_text())
    return undisturbed


def test_a_search_finds_the_best_and_trains_it(undisturbed, prepared):
    found = expected(undisturbed, prepared)
    assert [number for number, *_ in found["trials"]] == [0, 1, 2, 3]
    assert {state for _, state, *_ in found["trials"]} == {"COMPLETE"}
    best = max(found["trials"], key=lambda trial: trial[2])
    assert found["summary"]["search"]["best_trial"] == best[0]
    assert found["summary"]["search"]["params"] == best[3]
    assert len(found["summary"]["jobs"]) == 4
    assert found["summary"]["concatenated"]["embedding_size"] == 32
    assert {*TrackedTrials.trials} == {0, 1, 2, 3}


def test_a_trial_has_the_same_number_and_values_everywhere(undisturbed, prepared):
    found = expected(undisturbed, prepared)
    folder = found["folder"]
    table = folder.search / "trials.csv"
    stored = pd.read_csv(table, index_col="number")
    log = (folder.path / "train.log").read_text()
    assert f"number {found['summary']['search']['best_trial']}," in folder.best.read_text()
    for number, _, value, params in found["trials"]:
        assert stored.value[number] == pytest.approx(value, rel=1e-12)
        assert f"trial {number} ({number + 1} of 4)  {100 * value:.2f}" in log
        tracked = TrackedTrials.trials[number]
        assert (tracked["value"], tracked["params"]) == (value, params)
        assert tracked["options"].items() >= params.items()
        assert tracked["options"]["seed"] != 0  # of the trial


def test_scores_are_means_over_folds_and_only_what_is_below_the_median_is_pruned(
    prepared, monkeypatch
):
    """Trainings are replaced by scores: trial → score of each fold; 0: all embeddings are equal."""
    # After the second fold the median of the means is 0.3, and that of the second scores is 0.5.
    scores = [(0.1, 0.5, 0.5, 0.7), (0.3, 0.7, 0.1, 0.1), (0.5, 0.1, 0.1, 0)]
    scores += [(0.2, 0.9, 0.9, 0.9), (0.35, 0.4, 0.4, 0.4)]
    seeds = []

    def train(context, folder, stop, tracker):
        seeds.append(context.config.seed)
        for score in scores[int(folder.path.name)]:
            by_ties = {"validation": {"map_at_r": 0.9}, "collapsed": True}
            yield {"validation": {"map_at_r": score}} if score else by_ties

    monkeypatch.setattr(search_loop, "train_jobs", train)
    words = ("search.trials=5", "search.startup=3", "search.pruning=true")
    cfg, folder = prepared(*words)
    folder.path.mkdir(parents=True)
    search_loop.search(RunContext(check(cfg)), lambda: None, folder, Tracker())
    found = [(state, value) for _, state, value, _ in trials(folder)]
    assert [state for state, _ in found] == ["COMPLETE"] * 3 + ["PRUNED", "COMPLETE"]
    for number in (0, 1, 2, 4):
        assert found[number][1] == pytest.approx(statistics.fmean(scores[number]))
    assert len({0, *seeds}) == 6  # no trial has the seed of another one, or of the run


CHOICES = {
    "lists": ("transform.scale", [[0.1, 1.0], [0.5, 1.0]]),
    "mappings": ("optim.groups", [{"head": {"lr": 0.1}}, {"head": {"lr": 0.01}}]),
    "null": ("optim.clip_norm", [None, 1.0]),
}


@pytest.mark.pictures
@pytest.mark.parametrize("sampler", ["grid", "tpe", "gp"])
@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.promise(
    "guides/search.md",
    "a picture of the search cannot be drawn: a note says so, and the best configuration is "
    "trained",
)
def test_choices_of_any_type_are_searched(kind, sampler, prepared, capsys):
    """What Optuna cannot draw of them is a note."""
    name, choices = CHOICES[kind]
    space = f"+space.{name}={format_value({'choices': choices})}"
    if sampler == "grid":
        grid = ("search=grid", "search.trials=2")
        cfg, folder = prepared(*grid, "protocol=holdout", space)
    else:
        some = ("search.startup=1", "search.trials=3", "search.try_defaults=true")
        cfg, folder = prepared(f"search.sampler={sampler}", *some, "protocol=holdout", space)
    summary = start(cfg)
    search = summary["search"]
    assert search["complete"] == search["trials"] == (2 if sampler == "grid" else 3)
    assert search["params"][name] in choices
    assert ("search_slices.png cannot be drawn" in capsys.readouterr().out) == (kind != "null")
    assert (folder.figures / "search_history.png").exists()
    found, _ = extract_params([f"params={folder.best}", "loss=contrastive"], "train")
    again = compose_config(*found)
    assert OmegaConf.select(again, name) == search["params"][name]


@pytest.mark.parametrize(
    "point", ["after_step:5", "after_claim:3", "before_trial_end:2", "after_trial_end:3",
              "after_search:1"]
)  # fmt: skip
@pytest.mark.promise(
    "guides/search.md",
    "a process of a search is killed: its trial continues, and all trials are those of an "
    "undisturbed search",
)
def test_killed_and_restarted_equals_undisturbed(undisturbed, prepared, point):
    found = expected(undisturbed, prepared)
    cfg, folder = prepared()
    assert die_at(point, start, cfg) == KILLED
    start(cfg)
    assert trials(folder) == found["trials"]
    assert essence(folder.path) == found["essence"]
    assert not list(folder.trials.rglob("*.pt"))


def spawned(cfg):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=start, args=(cfg,))
    process.start()
    return process


@pytest.mark.promise(
    "guides/search.md",
    "several processes search: each trial is trained by one of them",
)
def test_two_workers_share_the_trials(prepared):
    cfg, folder = prepared("search.trials=6", "search.try_defaults=true")
    workers = [spawned(cfg), spawned(cfg)]
    for worker in workers:
        worker.join(180)
        assert worker.exitcode == 0
    assert [number for number, *_ in trials(folder)] == list(range(6))
    assert {state for _, state, *_ in trials(folder)} == {"COMPLETE"}
    assert trials(folder)[0][3] == {"loss.pos_margin": 0.0, "loss.neg_margin": 1.0}
    assert folder.summary.exists()


@pytest.mark.promise(
    "guides/search.md",
    "a trial fails: the search goes on, and `trials.csv` has the reason",
)
@pytest.mark.promise(
    "guides/search.md",
    "a sampler proposes a point that was tried: another point takes its place; where all points "
    "of a small space were tried, the known score is used",
)
def test_equal_points_of_a_small_space_are_trained_once(prepared, monkeypatch, capsys):
    trained = []
    validate = search_loop._validate

    def count(context, study, trial, stop):
        trained.append(trial.params)
        return validate(context, study, trial, stop)

    monkeypatch.setattr(search_loop, "_validate", count)
    cfg, folder = prepared("space=null", "+space.loss.pos_margin={choices:[0.1,0.3]}")
    start(cfg)
    values = {}
    for _, state, value, params in trials(folder):
        assert state == "COMPLETE"
        values.setdefault(params["loss.pos_margin"], set()).add(value)
    assert len(trained) == len(values) == 2
    assert all(len(scores) == 1 for scores in values.values())
    assert "4 trials tried 2 different points" in capsys.readouterr().out


def test_a_failing_trial_does_not_end_the_search(prepared, monkeypatch):
    from pytorch_metric_learning.losses import ContrastiveLoss

    clean = ContrastiveLoss.forward

    def poisoned(self, *args, **kwargs):
        bad = self.pos_margin < 0.9 if hasattr(self, "pos_margin") else False
        return clean(self, *args, **kwargs) * (math.nan if bad else 1.0)

    monkeypatch.setattr(ContrastiveLoss, "forward", poisoned)
    cfg, folder = prepared("space.loss.neg_margin=null")  # one option: its figures are drawn too
    summary = start(cfg)
    states = {state: params for _, state, _, params in trials(folder)}
    assert set(states) == {"COMPLETE", "FAIL"}
    assert states["FAIL"]["loss.pos_margin"] < 0.9
    assert summary["search"]["params"]["loss.pos_margin"] >= 0.9
    assert "not finite" in (folder.search / "trials.csv").read_text()


def test_processes_that_share_a_search_end_without_a_traceback(prepared, capfd):
    cfg, folder = prepared("search.trials=2", "protocol.workers=2")
    start(cfg)
    assert len(trials(folder)) == 2
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err


@pytest.mark.soak
def test_a_whole_search_on_glyphs(composed, tmp_path):
    """All of one row of a table: 50 trials of four folds, ten repeats of the best."""
    cfg = composed(
        f"outputs={tmp_path}", "protocol=mlrc", "search=bayes", "loss=mfcwms", "data=glyphs",
        "protocol.repeats=10", "protocol.steps_per_epoch=20", "protocol.epochs=4",
        "backbone.width=8", "protocol.workers=2",
    )  # fmt: skip
    summary = start(cfg)
    assert summary["search"]["complete"] == 50
    for part in (summary["metrics"], summary["concatenated"]["metrics"]):
        assert part["map_at_r"]["repeats"] == 10
        assert part["map_at_r"]["ci95"] > 0
    assert summary["metrics"]["map_at_r"]["mean"] > summary["untrained"]["map_at_r"]["mean"]


@pytest.mark.promise(
    "guides/search.md",
    "Optuna is too old: one line names the version that is needed",
)
def test_an_old_optuna_is_named(prepared, monkeypatch):
    monkeypatch.setattr(experiment, "version", lambda name: "2.10.1")
    with pytest.raises(UserError, match=r"needs Optuna 4\.2, found 2\.10\.1: pip install"):
        start(prepared()[0])


def test_a_search_from_which_nothing_follows_is_resumed(undisturbed, prepared):
    found = expected(undisturbed, prepared)
    assert json.loads(found["folder"].derived.read_text()) == {}
    again = experiment.resume(found["folder"].path, trust=True)
    assert again["search"] == found["summary"]["search"]


def test_a_trial_that_loses_the_gpu_is_stored_as_failed(prepared, monkeypatch):
    def fail(*more):
        raise RuntimeError("CUDA error: device-side assert triggered")

    cfg, folder = prepared("search.trials=2")
    folder.path.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(search_loop, "_validate", fail)
        patch.setattr("torch.cuda.empty_cache", fail)
        with pytest.raises(UserError, match=r"has lost the GPU's context .* the same command"):
            search_loop.search(RunContext(check(cfg)), lambda: None, folder, Tracker())
    assert [state for _, state, *_ in trials(folder)] == ["FAIL"]
