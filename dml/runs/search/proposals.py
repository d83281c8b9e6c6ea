"""Which configuration a trial tries: a function of the seed and of the trials finished before.

Nothing here has a state that a killed process could lose: the sampler is made anew for every trial
from a seed of its own and fed with what the study holds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState
from torch.quasirandom import SobolEngine

Params = dict[str, Any]


def distributions(ranges: dict[str, dict[str, Any]]) -> dict[str, BaseDistribution]:
    """Optuna's form of the ranges of `dml.config.search_space.merge_spaces`."""
    found: dict[str, BaseDistribution] = {}
    for name, entry in ranges.items():
        log, step = bool(entry.get("log")), entry.get("step")
        if "choices" in entry:
            found[name] = CategoricalDistribution(entry["choices"])
        elif entry.get("int"):
            low, high = int(entry["low"]), int(entry["high"])
            found[name] = IntDistribution(low, high, log=log, step=step or 1)
        else:
            found[name] = FloatDistribution(entry["low"], entry["high"], log=log, step=step)
    return found


def propose(
    number: int,
    space: dict[str, BaseDistribution],
    trials: Sequence[FrozenTrial],
    *,
    sampler: str,
    startup: int,
    seed: int,
) -> Params:
    """The parameters of trial `number`.

    Args:
        number: from 0; the first `startup` come from a scrambled Sobol sequence, and so do later
            ones while fewer than two trials are complete.
        space: what is varied.
        trials: all trials of the study. Running ones are told to the Gaussian process, so that
            workers do not try the same place at once.
        sampler: `gp` or `tpe`.
        startup: see `number`.
        seed: of everything.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if number < startup or len(complete) < 2:
        return _sobol(number, space, seed)
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both samplers have arguments marked experimental
        study = optuna.create_study(direction="maximize", sampler=_sampler(sampler, own))
        known = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.PRUNED)
        for trial in sorted(trials, key=lambda one: one.number):
            if trial.state in known:
                study.add_trial(trial)
        return study.ask(space).params


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "tpe":
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=1, multivariate=True, constant_liar=True
        )
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=1)


def _sobol(number: int, space: dict[str, BaseDistribution], seed: int) -> Params:
    """Point `number` of the sequence: spread more evenly than independent draws."""
    engine = SobolEngine(len(space), scramble=True, seed=seed)
    unit = engine.fast_forward(number).draw(1).double()[0].tolist()
    return {name: _at(u, space[name]) for name, u in zip(sorted(space), unit, strict=True)}


def _at(u: float, where: BaseDistribution) -> Any:
    """The value at 0 ≤ u < 1 of a range."""
    if isinstance(where, CategoricalDistribution):
        return where.choices[min(int(u * len(where.choices)), len(where.choices) - 1)]
    assert isinstance(where, FloatDistribution | IntDistribution)
    # An integer stands for the interval around it, so that both ends are as likely as the others.
    half = 0.5 if isinstance(where, IntDistribution) else 0.0
    low, high = where.low - half, where.high + half
    value = float(low * (high / low) ** u) if where.log else low + u * (high - low)
    if where.step:
        value = where.low + where.step * round((value - where.low) / where.step)
    value = min(max(value, where.low), where.high)
    return int(value) if isinstance(where, IntDistribution) else float(value)
