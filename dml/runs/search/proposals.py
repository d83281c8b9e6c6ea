"""The parameters of a trial as a function of the seed and of earlier trials.

There is no state that a killed process could lose: every trial has a new sampler with its own seed,
which receives the trials of the study.
"""

from __future__ import annotations

import itertools
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

from dml.core.errors import UserError

ATTEMPTS = 64  # to find a point that no trial has had
FIRST_SPARE = 4096  # point of the Sobol sequence from which equal proposals are replaced

Params = dict[str, Any]
Space = dict[str, BaseDistribution]


def create_distributions(ranges: dict[str, dict[str, Any]]) -> Space:
    """Converts the ranges of `dml.config.search_space.merge_spaces` to Optuna's distributions."""
    space: Space = {}
    for name, entry in ranges.items():
        if "choices" in entry:
            space[name] = CategoricalDistribution(entry["choices"])
        else:
            kind = IntDistribution if entry.get("int") else FloatDistribution
            keys = ("low", "high", "log", "step")
            space[name] = kind(**{k: entry[k] for k in keys if entry.get(k) is not None})
    return space


def propose(
    number: int, space: Space, trials: Sequence[FrozenTrial], sampler: str, startup: int, seed: int
) -> Params:
    """Returns the parameters of trial `number`, which no trial has had as long as there are others.

    A sampler that has found a corner of the space proposes it again and again, and the best of many
    trainings of one point is the luckiest: a point of the Sobol sequence takes its place.

    Args:
        number: from 0; the first `startup` come from a scrambled Sobol sequence, and so do later
            ones while fewer than two trials are complete.
        space: the searched options.
        trials: all trials of the study. The sampler knows running ones too, so that workers do not
            try the same parameters at once.
        sampler: `gp`, `tpe` or `grid`, whose trials are the combinations of all choices in turn
            (the last option varies fastest).
        startup: see `number`; not of `grid`.
        seed: of sequence and samplers.
    """
    if sampler == "grid":
        # Optuna's GridSampler would need its own attributes in the stored trials.
        choices = (space[name].choices for name in sorted(space))  # type: ignore[attr-defined]
        point = next(itertools.islice(itertools.product(*choices), number, None))
        return dict(zip(sorted(space), point, strict=True))
    tried = [trial.params for trial in trials]
    params = _sample(number, space, trials, sampler, startup, seed)
    for attempt in range(ATTEMPTS):
        if params not in tried:
            break
        params = _sobol_point(FIRST_SPARE + number * ATTEMPTS + attempt, space, seed)
    return params


def _sample(
    number: int, space: Space, trials: Sequence[FrozenTrial], sampler: str, startup: int, seed: int
) -> Params:
    """Returns a point of the Sobol sequence or of the sampler; see `propose`."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if number < startup or len(complete) < 2:
        return _sobol_point(number, space, seed)
    options: Params = {"seed": int(np.random.SeedSequence([seed, number]).generate_state(1)[0])}
    if sampler == "tpe":
        options |= {"multivariate": True, "constant_liar": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both samplers have arguments marked experimental
        samplers = {"tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
        proposer = samplers[sampler](n_startup_trials=1, **options)
        study = optuna.create_study(direction="maximize", sampler=proposer)
        study.add_trials([trial for trial in trials if trial.state != TrialState.FAIL])
        return study.ask(space).params


def clip(values: Params, space: Space) -> Params:
    """Returns values in the ranges of a space, on their steps; without `null` and other choices."""
    clipped: Params = {}
    for name, value in values.items():
        interval = space[name]
        if isinstance(interval, CategoricalDistribution):
            if value in interval.choices:
                clipped[name] = value
        elif value is not None:
            assert isinstance(interval, FloatDistribution | IntDistribution)
            inside = min(max(value, interval.low), interval.high)
            if interval.step is not None:
                steps = round((inside - interval.low) / interval.step)
                inside = min(interval.low + steps * interval.step, interval.high)
            clipped[name] = type(interval.low)(inside)
    return clipped


def check_params(params: Params, space: Space, source: str) -> None:
    """Checks that the parameters of a stored trial are of this search; a file may be of others.

    Raises:
        UserError: an option that is not searched, or a value that is neither a number nor a choice.
    """
    for name, value in params.items():
        is_number = isinstance(value, int | float)
        choices = getattr(space.get(name), "choices", ())
        if name not in space or not (is_number or value in choices):
            raise UserError(
                f"search: {source} holds a trial with {name}, which this search does not set to "
                f"such a value; overwrite=true starts it anew"
            )


def _sobol_point(number: int, space: Space, seed: int) -> Params:
    """Returns point `number` of a scrambled Sobol sequence."""
    engine = SobolEngine(len(space), scramble=True, seed=seed)
    unit = engine.fast_forward(number).draw(1).double()[0].tolist()
    return {name: _scale(u, space[name]) for name, u in zip(sorted(space), unit, strict=True)}


def _scale(u: float, interval: BaseDistribution) -> Any:
    """Returns the value of a range at 0 ≤ u < 1."""
    if isinstance(interval, CategoricalDistribution):
        return interval.choices[min(int(u * len(interval.choices)), len(interval.choices) - 1)]
    assert isinstance(interval, FloatDistribution | IntDistribution)
    # An integer stands for the interval around it, so that both ends are as likely as the rest.
    half = 0.5 if isinstance(interval, IntDistribution) else 0.0
    low, high = interval.low - half, interval.high + half
    value = float(low * (high / low) ** u) if interval.log else low + u * (high - low)
    if interval.step:
        value = interval.low + interval.step * round((value - interval.low) / interval.step)
    value = min(max(value, interval.low), interval.high)
    return int(value) if isinstance(interval, IntDistribution) else float(value)
