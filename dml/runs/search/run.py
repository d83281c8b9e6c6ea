"""The search of a run: trials until there are enough, then the best configuration."""

from __future__ import annotations

import gc
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from optuna.trial import FrozenTrial, TrialState

from dml.config.check import check
from dml.config.identity import identity
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.core.atomic_io import write_text
from dml.core.errors import RunStopped, UserError
from dml.core.fault_injection import fault_point
from dml.runs import protocols
from dml.runs.console import console
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_result import COLLAPSED
from dml.runs.jobs.train_jobs import Result, train_all
from dml.runs.search.proposals import distributions
from dml.runs.search.report import report
from dml.runs.search.study import REASON, Claim, Study
from dml.tracking import NullTracker

POLL_SECONDS = 1.0
Stop = Callable[[], RunStopped | None]


class Pruned(Exception):
    """A trial is too far behind to go on."""


@dataclass(frozen=True)
class Found:
    """What a search ended with.

    Attributes:
        params: dotted option → value of the best trial.
        summary: for `summary.json`.
    """

    params: dict[str, Any]
    summary: dict[str, Any]


def search(cfg: DictConfig, context: RunContext, folder: RunFolder, stop: Stop) -> Found:
    """Does trials, beside other workers if there are any, until all are finished.

    Args:
        cfg: of the run, as composed.
        context: its config, data and device.
        folder: its folder.
        stop: asked after every step.

    Raises:
        RunStopped: asked for; the trial under way goes on with the next start.
        UserError: no trial was completed, or none could differ from another.
    """
    config = context.config
    assert config.search is not None
    protocols.searchable(protocols.jobs(config.protocol.splits, 1, context.index))
    space = distributions(merge_spaces(config.space))
    study = Study(folder, config.search, space, config.seed)
    while study.open():
        claim = study.claim()
        if claim is None:
            _wait(stop)
            continue
        _run_trial(cfg, context, study, claim, stop)
    for trial in study.trials():  # of workers that died between a trial's end and its tidying up
        _tidy(study, trial.number)
    fault_point("after_search")
    return _found(study, folder)


def with_params(cfg: DictConfig, params: dict[str, Any]) -> DictConfig:
    """The config with other values; options are dotted."""
    changed = cfg.copy()
    OmegaConf.set_readonly(changed, False)
    for name, value in params.items():
        OmegaConf.update(changed, name, value)
    return changed


def trial_seed(seed: int, number: int) -> int:
    """Each trial draws its own: the best configuration must not be the best for one seed."""
    return int(np.random.SeedSequence([seed, 1, number]).generate_state(1)[0])


def _run_trial(
    cfg: DictConfig, context: RunContext, study: Study, claim: Claim, stop: Stop
) -> None:
    """One trial from its claim to its end in the study."""

    def alive() -> RunStopped | None:
        study.heard(claim)
        return stop()

    try:
        value = _validate(cfg, context, study, claim, alive)
    except RunStopped:
        study.release(claim)
        raise
    except Pruned:
        study.finish(claim, TrialState.PRUNED)
    except Exception as error:
        if _is_environment(error):
            study.release(claim)
            raise
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        study.finish(claim, TrialState.FAIL, reason=reason)
        gc.collect()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used
    else:
        fault_point("before_trial_end")
        study.finish(claim, TrialState.COMPLETE, value)
    fault_point("after_trial_end")
    _tidy(study, claim.number)
    _tell(study, claim)


def _validate(
    cfg: DictConfig, context: RunContext, study: Study, claim: Claim, stop: Stop
) -> float:
    """Mean validation score over the folds, each trained with the trial's parameters."""
    seed = trial_seed(context.config.seed, claim.number)
    own = {**claim.params, "seed": seed, "search": None, "protocol.repeats": 1}
    trial_cfg = with_params(cfg, own)
    config = check(trial_cfg, Config)
    p = config.protocol
    jobs = protocols.jobs(p.splits, 1, context.index, config.data.label_noise, seed)
    scores: list[float] = []

    def fold_done(result: Result) -> None:
        # Ties alone give 1 / classes, which beats a poor network where classes are few.
        score = 0.0 if result.get(COLLAPSED) else result["validation"][p.select_metric]
        scores.append(score)
        mean = statistics.fmean(scores)
        study.report(claim, len(scores) - 1, mean)
        if study.config.pruning and len(scores) < len(jobs):
            _prune(study, len(scores) - 1, mean)

    train_all(
        context.with_config(config, identity(trial_cfg)),
        jobs,
        study.trial_folder(claim.number),
        NullTracker(),
        stop,
        test=False,
        on_result=fold_done,
    )
    return statistics.fmean(scores)


def _prune(study: Study, fold: int, mean: float) -> None:
    """Gives up below the median that finished trials had after the same fold."""
    others = [
        trial.intermediate_values[fold]
        for trial in study.trials()
        if trial.state == TrialState.COMPLETE and fold in trial.intermediate_values
    ]
    if len(others) >= study.config.startup and mean < statistics.median(others):
        raise Pruned


def _is_environment(error: BaseException) -> bool:
    """A full disk or a lost mount is no fault of the configuration."""
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


def _wait(stop: Stop) -> None:
    request = stop()
    if request is not None:
        raise request
    time.sleep(POLL_SECONDS)


def _tidy(study: Study, number: int) -> None:
    shutil.rmtree(study.trial_folder(number).path / "checkpoints", ignore_errors=True)


def _tell(study: Study, claim: Claim) -> None:
    trial = study.storage.get_trial(claim.id)
    if trial.state == TrialState.COMPLETE:
        outcome = f"{100 * (trial.value or 0):.2f}"
    else:
        outcome = trial.state.name.lower() + f" {trial.user_attrs.get(REASON, '')}".rstrip()
    params = "  ".join(f"{name} {_short(value)}" for name, value in claim.params.items())
    console.print(f"trial {claim.number}  {outcome}  {params}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_of(trials: list[FrozenTrial]) -> FrozenTrial | None:
    """The complete trial with the highest score, the earliest of several; None if none is."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    return max(complete, key=lambda trial: (trial.value, -trial.number), default=None)


def _found(study: Study, folder: RunFolder) -> Found:
    trials = study.trials()
    best = best_of(trials)
    if best is None:
        reasons = [trial.user_attrs.get(REASON, "pruned") for trial in trials]
        raise UserError(
            f"search: none of {len(trials)} trials came to an end; most often: "
            f"{statistics.mode(reasons)}"
        )
    header = f"# Best of {len(trials)} trials: number {best.number}, validation {best.value}\n"
    header += f"# python train.py … params={folder.best}\n"
    write_text(folder.best, header + OmegaConf.to_yaml(OmegaConf.create(dict(best.params))))
    report(trials, study.space, folder)
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
    return Found(best.params, summary)
