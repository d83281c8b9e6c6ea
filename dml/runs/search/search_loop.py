"""The search of a run: trains trials until there are enough, and reports the best one."""

from __future__ import annotations

import gc
import shutil
import statistics
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from omegaconf import DictConfig, OmegaConf
from optuna import TrialPruned
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as pictures

from dml.config.check import check
from dml.config.identity import identity
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.core.atomic_io import write_text
from dml.core.errors import RunStopped, UserError, first_line
from dml.core.fault_injection import fault_point
from dml.core.installation import shell_command
from dml.core.progress import show_task
from dml.runs.build import Builder
from dml.runs.console import print_line
from dml.runs.figures.drawing import save
from dml.runs.folder.run_folder import RunFolder
from dml.runs.job import COLLAPSED, Result, RunContext
from dml.runs.protocol import validates_one_class
from dml.runs.search.proposals import clip, create_distributions
from dml.runs.search.study import REASON, Study
from dml.runs.train_jobs import train_jobs, wait
from dml.runs.training_status import RunPosition
from dml.runs.workers import Stop, start_workers
from dml.tracking import Tracker

NO_TRACKER = Tracker()


def search(
    cfg: DictConfig, context: RunContext, stop: Stop, folder: RunFolder, tracker: Tracker
) -> dict[str, Any]:
    """Trains trials, together with other workers, until all are finished.

    Args:
        cfg: of the run, as composed by Hydra.
        context: config, data and device of the run.
        stop: called after every step.
        folder: of the run.
        tracker: receives the finished trials.

    Returns:
        The part `search` of the summary; `params` are the best trial's dotted options and values.

    Raises:
        RunStopped: `stop` asked for it; the trial continues with the next start.
        UserError: no trial was completed, or their scores cannot differ.
    """
    if all(map(validates_one_class, context.jobs())):
        raise UserError(
            f"search: '{context.index.name}' leaves one class to validate on, where every score is "
            f"100; take data with more classes"
        )
    work, others = partial(_train_trials, cfg, folder), context.config.protocol.workers - 1
    with start_workers(context, folder.path, others, work, stop) as watch:
        study = work(context, watch, tracker)
    for trial in study.optuna_study.trials:  # workers may have died before they deleted checkpoints
        _delete_checkpoints(study, trial.number)
    fault_point("after_search")
    return _report(study, folder)


def _train_trials(
    cfg: DictConfig,
    folder: RunFolder,
    context: RunContext,
    stop: Stop,
    tracker: Tracker = NO_TRACKER,
) -> Study:
    """Trains trials until all are finished; returns their study."""
    config = context.config
    assert config.search is not None
    space = create_distributions(merge_spaces(config.space, config.search.sampler == "grid"))
    study = Study(folder, config.search, space, config.seed)
    if config.search.try_defaults:
        study.first = clip({name: OmegaConf.select(cfg, name) for name in space}, space)
    while study.has_open_trials():
        with show_task(_position(study, context).describe_trial()):
            trial = study.claim_trial()
            if trial is None:
                wait(stop)
                continue
        _run_trial(cfg, context, study, trial, stop)
        _track(study, tracker)
    _track(study, tracker)
    return study


def _track(study: Study, tracker: Tracker) -> None:
    """Passes the finished trials of all processes to the tracker."""
    for trial in study.optuna_study.trials:
        if trial.state.is_finished():
            row = {"number": trial.number, "value": trial.value, "params": trial.params}
            tracker.trial_done({**row, "state": trial.state.name.lower()})


def override(cfg: DictConfig, params: dict[str, Any]) -> DictConfig:
    """Returns the config with other values of dotted options."""
    changed = cfg.copy()
    OmegaConf.set_readonly(changed, False)
    for name, value in params.items():
        OmegaConf.update(changed, name, value)
    return changed


def _run_trial(
    cfg: DictConfig, context: RunContext, study: Study, trial: FrozenTrial, stop: Stop
) -> None:
    """Trains a trial and ends it in the study."""

    def renew_and_ask() -> RunStopped | None:
        study.renew_lease(trial)
        return stop()

    state, value, reason = TrialState.COMPLETE, None, ""
    try:
        value = _validate(cfg, context, study, trial, renew_and_ask)
    except TrialPruned:
        state = TrialState.PRUNED
    except (Exception, RunStopped) as error:
        # A full disk or a lost mount was not caused by the configuration.
        if isinstance(error, RunStopped | OSError) or isinstance(error.__cause__, OSError):
            study.release(trial)
            raise
        state, reason = TrialState.FAIL, first_line(error)
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used
    fault_point("before_trial_end")
    study.finish(trial, state, value, reason)
    fault_point("after_trial_end")
    _delete_checkpoints(study, trial.number)
    _print_trial(study, trial)


def _validate(
    cfg: DictConfig, context: RunContext, study: Study, trial: FrozenTrial, stop: Stop
) -> float:
    """Returns the mean validation score over the folds, trained with the trial's parameters."""
    # A seed of its own, so that the best configuration is not the best for one seed.
    sequence = np.random.SeedSequence([context.config.seed, 1, trial.number])
    seed = int(sequence.generate_state(1)[0])
    overrides = {**trial.params, "seed": seed, "search": None, "protocol.repeats": 1}
    overrides["protocol.workers"] = 1
    trial_cfg = override(cfg, overrides)
    trial_context = replace(
        context,
        builder=Builder(check(trial_cfg, Config)),
        identity=identity(trial_cfg),
        position=_position(study, context, trial.number),
    )
    jobs, metric = trial_context.jobs(), context.config.protocol.select_metric
    scores: list[float] = []

    def fold_done(result: Result) -> None:
        # Ties score 1 / classes, which can exceed the score of a poor network.
        scores.append(0.0 if result.get(COLLAPSED) else result["validation"][metric])
        fold, mean = len(scores) - 1, statistics.fmean(scores)
        study.report_score(trial, fold, mean)
        if study.config.pruning and len(scores) < len(jobs):
            values = (one.intermediate_values.get(fold) for one in study.complete_trials())
            others = [value for value in values if value is not None]
            if len(others) >= study.config.startup and mean < statistics.median(others):
                raise TrialPruned

    folder = study.trial_folder(trial.number)
    train_jobs(trial_context, jobs, folder, Tracker(), stop, test=False, on_result=fold_done)
    return statistics.fmean(scores)


def _position(study: Study, context: RunContext, number: int | None = None) -> RunPosition:
    """Returns the position of a trial; None: of the next one."""
    run, total, best = context.position, study.config.trials, study.best_trial()
    number = min(len(study.optuna_study.trials), total - 1) if number is None else number
    later = (total - number - 1) * run.folds + run.repeats * run.folds
    return RunPosition(1, run.folds, number, total, best.value if best else None, later)


def _delete_checkpoints(study: Study, number: int) -> None:
    shutil.rmtree(study.trial_folder(number).path / "checkpoints", ignore_errors=True)


def _print_trial(study: Study, trial: FrozenTrial) -> None:
    stored, best = study.storage.get_trial(trial._trial_id), study.best_trial()
    if stored.state == TrialState.COMPLETE:
        mark = "  best so far" if best is not None and best.number == trial.number else ""
        outcome = f"{100 * (stored.value or 0):.2f}{mark}"
    else:
        outcome = stored.state.name.lower() + f" {stored.user_attrs.get(REASON, '')}".rstrip()
    params = "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.params.items()
    )
    print_line(f"trial {trial.number + 1} of {study.config.trials}  {outcome}  {params}")


def _report(study: Study, folder: RunFolder) -> dict[str, Any]:
    """Writes `best.yaml`, `search/trials.csv` and figures; returns the summary of the search."""
    trials, best = study.optuna_study.trials, study.best_trial()
    if best is None:
        reasons = [trial.user_attrs.get(REASON, "pruned") for trial in trials]
        raise UserError(
            f"search: none of {len(trials)} trials was completed; most frequent reason: "
            f"{statistics.mode(reasons)}"
        )
    header = f"# Best of {len(trials)} trials: number {best.number}, validation {best.value}\n"
    header += f"# {shell_command('train')} … params={folder.best}\n"
    write_text(folder.best, header + OmegaConf.to_yaml(OmegaConf.create(dict(best.params))))
    columns = ("number", "state", "value", "params", "user_attrs")
    table = study.optuna_study.trials_dataframe(columns)
    table.columns = table.columns.str.replace("^(params|user_attrs)_", "", regex=True)
    table = table.reindex(columns=["number", "state", "value", *study.space, REASON])
    table["state"] = table["state"].str.lower()
    write_text(folder.search / "trials.csv", table.to_csv(index=False))
    _draw(study, folder)
    count = Counter(trial.state for trial in trials)
    return {
        "trials": len(trials),
        "complete": count[TrialState.COMPLETE],
        "pruned": count[TrialState.PRUNED],
        "failed": count[TrialState.FAIL],
        "best_trial": best.number,
        "best_value": best.value,
        "params": best.params,
    }


def _draw(study: Study, folder: RunFolder) -> None:
    """Draws history, slices, contour (of two options) and importances of the complete trials."""
    scores = [trial.value for trial in study.complete_trials()]
    found, options = study.optuna_study, [*study.space]
    label: Any = {"target_name": "score on validation images"}
    with warnings.catch_warnings(), plt.rc_context():  # optuna changes the style of all pictures
        warnings.simplefilter("ignore")  # its own are marked as experimental
        figures: dict[str, Any] = {
            "history": pictures.plot_optimization_history(found, **label),
            "slices": pictures.plot_slice(found, options, **label),
        }
        if len(options) == 2:
            figures["contour"] = pictures.plot_contour(found, options, **label)
        if len(scores) > 3 and len(set(scores)) > 1:
            evaluator = FanovaImportanceEvaluator(seed=0)
            figures["importances"] = pictures.plot_param_importances(found, evaluator, **label)
        for kind, axes in figures.items():
            figure = np.atleast_1d(axes).flat[0].figure  # of an axis, or of an array of them
            # "constrained" fails for a single plot, "tight" puts the color bar onto several.
            single = len(options) == 1 or kind == "contour"
            figure.set_layout_engine("tight" if single else "constrained")
            save(figure, folder.figures / f"search_{kind}.png")
