"""The search of a run: trains trials until there are enough, and returns the best one."""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from optuna import TrialPruned
from optuna.trial import FrozenTrial, TrialState

from dml.config.check import check
from dml.config.identity import identity
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.core.atomic_io import write_text
from dml.core.errors import RunStopped, UserError
from dml.core.fault_injection import fault_point
from dml.core.installation import shell_command
from dml.core.progress import show_status
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import check_searchable
from dml.runs.jobs.job_result import COLLAPSED
from dml.runs.jobs.train_jobs import Result, train_jobs
from dml.runs.search.proposals import create_distributions
from dml.runs.search.search_report import write_search_report
from dml.runs.search.study import REASON, ClaimedTrial, Study
from dml.runs.training_status import RunPosition
from dml.tracking import NullTracker

POLL_SECONDS = 1.0
Stop = Callable[[], RunStopped | None]


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search.

    Attributes:
        params: dotted option → value of the best trial.
        summary: for `summary.json`.
    """

    params: dict[str, Any]
    summary: dict[str, Any]


def search(cfg: DictConfig, context: RunContext, folder: RunFolder, stop: Stop) -> SearchOutcome:
    """Trains trials, beside other workers if there are any, until all are finished.

    Args:
        cfg: of the run, as composed by Hydra.
        context: config, data and device of the run.
        folder: of the run.
        stop: called after every step.

    Raises:
        RunStopped: `stop` asked for it; the trial continues with the next start.
        UserError: no trial was completed, or their scores cannot differ.
    """
    config = context.config
    assert config.search is not None
    check_searchable(context.jobs())
    space = create_distributions(merge_spaces(config.space, config.search.sampler == "grid"))
    study = Study(folder, config.search, space, config.seed)
    while study.has_open_trials():
        with show_status(_position(study, context).search_parts):
            trial = study.claim_trial()
            if trial is None:
                _wait(stop)
                continue
        _run_trial(cfg, context, study, trial, stop)
    for finished in study.trials():  # workers may have died before they deleted checkpoints
        _delete_checkpoints(study, finished.number)
    fault_point("after_search")
    return _report_best(study, folder)


def override(cfg: DictConfig, params: dict[str, Any]) -> DictConfig:
    """Returns the config with other values of dotted options."""
    changed = cfg.copy()
    OmegaConf.set_readonly(changed, False)
    for name, value in params.items():
        OmegaConf.update(changed, name, value)
    return changed


def trial_seed(seed: int, number: int) -> int:
    """Returns the seed of a trial, so that the best configuration is not the best for one seed."""
    return int(np.random.SeedSequence([seed, 1, number]).generate_state(1)[0])


def _run_trial(
    cfg: DictConfig, context: RunContext, study: Study, trial: ClaimedTrial, stop: Stop
) -> None:
    """Trains a trial and ends it in the study."""

    def renew_and_ask() -> RunStopped | None:
        study.renew_lease(trial)
        return stop()

    try:
        value = _validate(cfg, context, study, trial, renew_and_ask)
    except RunStopped:
        study.release(trial)
        raise
    except TrialPruned:
        study.finish(trial, TrialState.PRUNED)
    except Exception as error:
        if _is_machine_error(error):
            study.release(trial)
            raise
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        study.finish(trial, TrialState.FAIL, reason=reason)
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used
    else:
        fault_point("before_trial_end")
        study.finish(trial, TrialState.COMPLETE, value)
    fault_point("after_trial_end")
    _delete_checkpoints(study, trial.number)
    _print_trial(study, trial)


def _validate(
    cfg: DictConfig, context: RunContext, study: Study, trial: ClaimedTrial, stop: Stop
) -> float:
    """Returns the mean validation score over the folds, trained with the trial's parameters."""
    seed = trial_seed(context.config.seed, trial.number)
    overrides = {**trial.params, "seed": seed, "search": None, "protocol.repeats": 1}
    trial_cfg = override(cfg, overrides)
    config = check(trial_cfg, Config)
    position = _position(study, context, trial.number)
    trial_context = replace(context.with_config(config, identity(trial_cfg)), position=position)
    jobs = trial_context.jobs()
    scores: list[float] = []

    def fold_done(result: Result) -> None:
        # Ties score 1 / classes, which can exceed the score of a poor network.
        score = (
            0.0 if result.get(COLLAPSED) else result["validation"][config.protocol.select_metric]
        )
        scores.append(score)
        mean = statistics.fmean(scores)
        study.report_score(trial, len(scores) - 1, mean)
        if study.config.pruning and len(scores) < len(jobs):
            _prune_below_median(study, len(scores) - 1, mean)

    train_jobs(
        trial_context,
        jobs,
        study.trial_folder(trial.number),
        NullTracker(),
        stop,
        test=False,
        on_result=fold_done,
    )
    return statistics.fmean(scores)


def _position(study: Study, context: RunContext, number: int | None = None) -> RunPosition:
    """Returns the place of a trial; None: of the next one."""
    trials, run, total = study.trials(), context.position, study.config.trials
    best = find_best(trials)
    number = min(len(trials), total - 1) if number is None else number
    later = (total - number - 1) * run.folds + run.repeats * run.folds
    return RunPosition(1, run.folds, number, total, best.value if best else None, later)


def _prune_below_median(study: Study, fold: int, mean: float) -> None:
    """Raises TrialPruned below the median of finished trials after the same fold."""
    others = [
        trial.intermediate_values[fold]
        for trial in study.trials()
        if trial.state == TrialState.COMPLETE and fold in trial.intermediate_values
    ]
    if len(others) >= study.config.startup and mean < statistics.median(others):
        raise TrialPruned


def _is_machine_error(error: BaseException) -> bool:
    """Returns True for a full disk or a lost mount, which the configuration did not cause."""
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def _wait(stop: Stop) -> None:
    request = stop()
    if request is not None:
        raise request
    time.sleep(POLL_SECONDS)


def _delete_checkpoints(study: Study, number: int) -> None:
    shutil.rmtree(study.trial_folder(number).path / "checkpoints", ignore_errors=True)


def _print_trial(study: Study, trial: ClaimedTrial) -> None:
    stored = study.storage.get_trial(trial.id)
    if stored.state == TrialState.COMPLETE:
        outcome = f"{100 * (stored.value or 0):.2f}"
    else:
        outcome = stored.state.name.lower() + f" {stored.user_attrs.get(REASON, '')}".rstrip()
    params = "  ".join(f"{name} {_format_value(value)}" for name, value in trial.params.items())
    best = find_best(study.trials())
    mark = "  best so far" if best is not None and best.number == trial.number else ""
    place = f"trial {trial.number + 1} of {study.config.trials}"
    print_line(f"{place}  {outcome}{mark}  {params}")


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def find_best(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """Returns the first complete trial with the highest score; None if no trial is complete."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


def _report_best(study: Study, folder: RunFolder) -> SearchOutcome:
    trials = study.trials()
    best = find_best(trials)
    if best is None:
        reasons = [trial.user_attrs.get(REASON, "pruned") for trial in trials]
        raise UserError(
            f"search: none of {len(trials)} trials was completed; most frequent reason: "
            f"{statistics.mode(reasons)}"
        )
    header = f"# Best of {len(trials)} trials: number {best.number}, validation {best.value}\n"
    header += f"# {shell_command('train')} … params={folder.best}\n"
    write_text(folder.best, header + OmegaConf.to_yaml(OmegaConf.create(dict(best.params))))
    write_search_report(trials, study.space, folder)
    count = {state: sum(trial.state == state for trial in trials) for state in TrialState}
    summary = {
        "trials": len(trials),
        "complete": count[TrialState.COMPLETE],
        "pruned": count[TrialState.PRUNED],
        "failed": count[TrialState.FAIL],
        "best_trial": best.number,
        "best_value": best.value,
        "params": best.params,
    }
    return SearchOutcome(best.params, summary)
