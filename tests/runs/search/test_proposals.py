import itertools
import math

import pytest
from optuna.trial import TrialState, create_trial

from dml.config.search_space import merge_spaces
from dml.runs.search.proposals import clip, create_distributions, propose

RANGES = {
    "a": {"low": -0.2, "high": 2},
    "b": {"low": 1e-6, "high": 1, "log": True},
    "c": {"low": 2, "high": 5, "int": True},
}


def score(params):
    return -((params["a"] - 1.3) ** 2) - params["b"]


def searched(sampler, count, startup=5, seed=0):
    space = create_distributions(RANGES)
    trials = []
    for number in range(count):
        params = propose(number, space, trials, sampler=sampler, startup=startup, seed=seed)
        done = create_trial(params=params, distributions=space, value=score(params))
        done.number = number
        trials.append(done)
    return trials


def test_values_are_clipped_to_the_ranges():
    ranges = {**RANGES, "d": {"choices": [4, 8]}, "e": {"choices": [1]}}
    values = {"a": 3, "b": None, "c": 1.0, "d": 8, "e": 2}
    assert clip(values, create_distributions(ranges)) == {"a": 2.0, "c": 2, "d": 8}


@pytest.mark.parametrize(("value", "expected"), [(25, 32), (23, 16), (41, 48), (99, 64), (1, 16)])
def test_defaults_of_a_range_with_steps(value, expected):
    ranges = {"a": {"low": 16, "high": 64, "step": 16, "int": True}}
    space = create_distributions(ranges)
    assert clip({"a": value}, space) == {"a": expected}
    floats = create_distributions({"a": {"low": 0.1, "high": 0.9, "step": 0.2}})
    for number in (0.1, 0.2, 0.35, 0.89, 0.9, 5.0):
        assert floats["a"]._contains(clip({"a": number}, floats)["a"])


@pytest.mark.parametrize("seed", range(3))
def test_the_first_trials_cover_all_ranges_evenly(seed):
    """A quarter of them in each quarter of a range: of numbers, of exponents, of whole numbers."""
    space = create_distributions(RANGES)
    points = [propose(n, space, [], sampler="gp", startup=64, seed=seed) for n in range(64)]
    quarters = {
        "a": [int(4 * (point["a"] + 0.2) / 2.2) for point in points],
        "b": [int(4 * (math.log10(point["b"]) + 6) / 6) for point in points],
        "c": [point["c"] - 2 for point in points],
    }
    for numbers in quarters.values():
        counts = [numbers.count(quarter) for quarter in range(4)]
        assert sum(counts) == 64
        assert 14 <= min(counts) <= max(counts) <= 18


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_proposals_depend_on_seed_and_trials_alone(sampler):
    trials = searched(sampler, 8)
    again = [
        propose(8, create_distributions(RANGES), trials, sampler=sampler, startup=5, seed=0)
        for _ in range(2)
    ]
    assert again[0] == again[1]
    other = propose(8, create_distributions(RANGES), trials, sampler=sampler, startup=5, seed=1)
    assert other != again[0]


def test_the_gaussian_process_finds_the_peak():
    best = max(searched("gp", 16), key=lambda trial: trial.value)
    assert abs(best.params["a"] - 1.3) < 0.15


def test_running_trials_are_not_tried_twice():
    space = create_distributions(RANGES)
    trials = searched("gp", 8)
    alone = propose(8, space, trials, sampler="gp", startup=5, seed=0)
    running = create_trial(state=TrialState.RUNNING, params=alone, distributions=space)
    running.number = 8
    beside = propose(9, space, [*trials, running], sampler="gp", startup=5, seed=0)
    assert beside != alone


@pytest.mark.parametrize(
    ("sampler", "state", "counts"),
    [
        ("tpe", TrialState.RUNNING, True),
        ("tpe", TrialState.PRUNED, True),
        ("tpe", TrialState.FAIL, False),
        ("gp", TrialState.FAIL, False),
    ],
)
def test_unfinished_trials_nearby_count_and_failed_ones_do_not(sampler, state, counts):
    space, trials = create_distributions(RANGES), searched(sampler, 8)
    alone = propose(9, space, trials, sampler=sampler, startup=5, seed=0)
    nearby = alone | {"a": alone["a"] + 0.01}  # equal points are replaced anyway
    scores = {0: score(nearby)} if state == TrialState.PRUNED else {}
    other = create_trial(
        state=state, params=nearby, distributions=space, intermediate_values=scores
    )
    other.number = 8
    beside = propose(9, space, [*trials, other], sampler=sampler, startup=5, seed=0)
    assert (beside != alone) == counts


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.RUNNING, TrialState.COMPLETE])
def test_the_first_points_go_on_until_two_trials_are_complete(sampler, state):
    space = create_distributions(RANGES)
    trials = searched(sampler, 1)
    for number in range(1, 6):
        first = propose(number, space, trials, sampler=sampler, startup=100, seed=0)
        found = propose(number, space, trials, sampler=sampler, startup=1, seed=0)
        complete = sum(trial.state == TrialState.COMPLETE for trial in trials)
        assert (found == first) == (complete < 2)
        value = score(first) if state == TrialState.COMPLETE else None
        trial = create_trial(state=state, params=first, distributions=space, value=value)
        trial.number = number
        trials.append(trial)


def test_spaces_merge_and_null_takes_out():
    space = {
        "loss": {"alpha": {"low": 0, "high": 1}, "beta": None},
        "method.k": {"choices": [1, 2]},
        "optim": {"lr": {"low": 1, "high": 2}},
    }
    assert list(merge_spaces(space)) == ["loss.alpha", "method.k", "optim.lr"]
    assert list(merge_spaces(space, grid=True)) == ["method.k"]


def test_a_grid_tries_every_combination_once():
    space = create_distributions(
        {"optim.lr": {"choices": [1e-4, 1e-3, 1e-2]}, "loss.alpha": {"choices": [1, 32]}}
    )
    tried = [propose(n, space, [], sampler="grid", startup=1, seed=n) for n in range(6)]
    assert sorted((one["loss.alpha"], one["optim.lr"]) for one in tried) == sorted(
        itertools.product([1, 32], [1e-4, 1e-3, 1e-2])
    )


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_corner_of_the_space_is_proposed_once(sampler):
    """The best score is at a corner, which a sampler would propose again and again."""
    space = create_distributions(
        {"a": {"low": 0, "high": 1}, "c": {"low": 1, "high": 3, "int": True}}
    )
    trials = []
    for number in range(16):
        params = propose(number, space, trials, sampler=sampler, startup=4, seed=0)
        value = params["a"] + params["c"]
        trials.append(create_trial(params=params, distributions=space, value=value))
    points = [tuple(trial.params.values()) for trial in trials]
    assert len(set(points)) == len(points)


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_all_points_of_a_small_space_are_tried_before_one_comes_again(sampler):
    space = create_distributions(
        {"a": {"choices": [1, 2, 3]}, "c": {"low": 1, "high": 2, "int": True}}
    )
    trials = []
    for number in range(8):
        params = propose(number, space, trials, sampler=sampler, startup=3, seed=1)
        trials.append(create_trial(params=params, distributions=space, value=params["a"]))
    points = [tuple(trial.params.values()) for trial in trials]
    assert len(set(points[:6])) == len(set(points)) == 6
