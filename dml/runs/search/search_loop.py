"""The search of a run: trains trials until there are enough, and reports the best one."""

from __future__ import annotations

import gc
import statistics
import warnings

import numpy as np
import torch
from optuna import TrialPruned
from optuna.trial import FrozenTrial, TrialState

from dml.config.options import get_option
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.core.errors import RunStopped, UserError, first_line, refuse_exits
from dml.core.fault_injection import fault_point
from dml.core.locks import FolderGone, HolderWait, share_folder
from dml.core.metric_names import format_metric, is_score
from dml.core.progress import show_task
from dml.core.waits import NoAnswerError
from dml.data.protocol import FOLDS, validates_one_class
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.job import Result
from dml.runs.job_scores import COLLAPSED
from dml.runs.search.proposals import Params, Space, clip, create_distributions
from dml.runs.search.range_check import check_ranges
from dml.runs.search.storage import StorageError
from dml.runs.search.study import REASON, Study
from dml.runs.train_jobs import REMEDY, train_jobs, wait
from dml.runs.training_status import Trial
from dml.runs.workers import Stop
from dml.tracking import Tracker

LOST = (
    RunStopped,
    OSError,
    FolderGone,
    StorageError,
    NoAnswerError,
)  # what ends a search, and not the trial alone


def search(context: RunContext, stop: Stop, folder: RunFolder, tracker: Tracker) -> Study:
    """Trains trials, together with other processes, until all are finished.

    Args:
        context: config, data and device of the run.
        stop: called after every step.
        folder: of the run.
        tracker: receives the finished trials.

    Raises:
        RunStopped: `stop` asked for it; the trial continues with the next start.
        UserError: the scores of the trials cannot differ, or the folder is gone.
    """
    with warnings.catch_warnings():
        # Optuna repeats it at every look at a trial; its journal stores lists and mappings, too.
        warnings.filterwarnings("ignore", "Choices for a categorical distribution")
        with share_folder(folder.path), share_folder(folder.search):
            return _search(context, stop, folder, tracker)


def _search(context: RunContext, stop: Stop, folder: RunFolder, tracker: Tracker) -> Study:
    if all(map(validates_one_class, context.jobs)):
        raise UserError(
            f"search: '{context.index.name}' leaves one class to validate on, where every score is "
            f"100; take data with more classes"
        )
    config = context.config
    assert config.search is not None
    space = create_distributions(merge_spaces(config.space, config.search.sampler == "grid"))
    for note in check_ranges(config, space):
        print_line(f"note: {note}")
    study = Study(folder, config.search, space, config.seed)
    if config.search.try_defaults:
        study.first = _read_defaults(config, space)
    others = HolderWait(REMEDY)
    while study.has_open_trials():
        with show_task(_describe_position(study, context).describe()):
            trial = study.claim_trial()
            if trial is None:
                wait(stop, others, study.claims())
                continue
        _run_trial(context, study, trial, stop)
        _track(context, study, tracker)
    _track(context, study, tracker)
    fault_point("after_search")
    return study


def _read_defaults(config: Config, space: Space) -> Params:
    """Returns the values of the config for the first trial; prints a note on those that differ."""
    defaults = {name: get_option(config.plain, name) for name in space}
    ratio = config.optim.loss_lr_ratio
    if config.optim.loss_lr is None and "optim.loss_lr" in space and ratio is not None:
        defaults["optim.loss_lr"] = config.optim.lr * ratio
    first = clip(defaults, space)
    for name, value in defaults.items():
        if name not in first:
            print_line(f"note: search.try_defaults: {name} has no default in its range")
        elif first[name] != value:
            print_line(f"note: search.try_defaults: {name} is {first[name]} instead of {value}")
    return first


def _track(context: RunContext, study: Study, tracker: Tracker) -> None:
    """Passes the finished trials of all processes to the tracker."""
    for trial in study.trials:
        if trial.state.is_finished():
            row: Params = {"number": trial.number, "value": trial.value, "params": trial.params}
            row |= {"state": trial.state.name.lower(), "options": _trial_options(context, trial)}
            tracker.trial_done(row)


def _trial_options(context: RunContext, trial: FrozenTrial) -> Params:
    """Returns the options in which a trial differs from the run: dotted name → value."""
    # A seed of its own, so that the best configuration is not the best for one seed.
    sequence = np.random.SeedSequence([context.config.seed, 1, trial.number])
    seed = int(sequence.generate_state(1)[0])
    return {**trial.params, "seed": seed, "search": None, "protocol.repeats": 1}


def _run_trial(context: RunContext, study: Study, trial: FrozenTrial, stop: Stop) -> None:
    """Trains a trial and stores its result in the study."""
    state, value, reason = TrialState.COMPLETE, None, ""
    equal = study.find_equal(trial)
    try:
        if equal is not None:  # all points of a small space were tried
            value = equal.value
        else:
            with refuse_exits():
                value = _validate(context, study, trial, stop)
    except TrialPruned:
        state = TrialState.PRUNED
    except (Exception, RunStopped) as error:
        # A full disk, a lost mount or folder was not caused by the configuration.
        if isinstance(error, LOST) or isinstance(error.__cause__, OSError):
            study.release()
            raise
        state, reason = TrialState.FAIL, first_line(error)
    fault_point("before_trial_end")
    study.finish(trial, state, value, reason)
    fault_point("after_trial_end")
    study.delete_checkpoints(trial.number)
    _print_trial(study, trial, context.config.protocol.select_metric)
    if state == TrialState.FAIL:
        _free_memory()


def _free_memory() -> None:
    """Frees the memory of a failed trial.

    Raises:
        UserError: the trial has lost the GPU's context, so that no other can be trained here.
    """
    gc.collect()
    try:
        torch.cuda.empty_cache()  # does nothing where CUDA was not used
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError as error:
        raise UserError(
            f"search: a failed trial has lost the GPU's context ({first_line(error)}); the same "
            f"command continues with the next trial"
        ) from error


def _validate(context: RunContext, study: Study, trial: FrozenTrial, stop: Stop) -> float:
    """Returns the mean validation score over the folds, trained with the trial's parameters."""
    values = _trial_options(context, trial)
    trial_context = context.with_values(values, _describe_position(study, context, trial.number))
    metric, folds = context.config.protocol.select_metric, len(trial_context.jobs)
    scores: list[float] = []

    for result in train_jobs(trial_context, study.trial_folder(trial.number), stop, Tracker()):
        scores.append(_read_score(result, metric))
        fold, mean = len(scores) - 1, statistics.fmean(scores)
        study.report_score(trial, fold, mean)
        may_be_pruned = study.config.pruning and len(scores) < folds
        if may_be_pruned and _is_below_median(study, fold, mean):
            raise TrialPruned
    return statistics.fmean(scores)


def _read_score(result: Result, metric: str) -> float:
    """Returns the validation score of a model.

    Raises:
        UserError: a metric of the user has no value, or is of embeddings that are all equal.
    """
    if result.get(COLLAPSED) and is_score(metric):
        return 0.0  # ties score 1 / classes, which can exceed the score of a poor network
    if result.get(COLLAPSED) or metric not in result["validation"]:
        raise UserError(f"protocol.select_metric: {metric} has no value for the best network")
    return float(result["validation"][metric])


def _is_below_median(study: Study, fold: int, mean: float) -> bool:
    """Returns whether a mean is below the median of the complete trials after the same fold."""
    means = []
    for trial in study.complete_trials():
        value = trial.intermediate_values.get(fold)
        if value is not None:
            means.append(value)
    return len(means) >= study.config.startup and mean < statistics.median(means)


def _describe_position(study: Study, context: RunContext, number: int | None = None) -> Trial:
    """Returns the position of a trial among the others; None: of the next one."""
    protocol, total, best = context.config.protocol, study.config.trials, study.best_trial()
    if number is None:
        number = min(len(study.trials), total - 1)
    later = (total - number - 1 + protocol.repeats) * FOLDS[protocol.splits]
    return Trial(number, total, best.value if best else None, later, protocol.select_metric)


def _print_trial(study: Study, trial: FrozenTrial, metric: str) -> None:
    stored, best = study.stored(trial), study.best_trial()
    if stored.state == TrialState.COMPLETE:
        mark = "  best so far" if best is not None and best.number == trial.number else ""
        outcome = f"{format_metric(metric, stored.value or 0)}{mark}"
    else:
        outcome = stored.state.name.lower() + f" {stored.user_attrs.get(REASON, '')}".rstrip()
    parts = [f"trial {trial.number} ({trial.number + 1} of {study.config.trials})", outcome]
    for name, value in trial.params.items():
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        parts.append(f"{name} {text}")
    print_line("  ".join(parts))
