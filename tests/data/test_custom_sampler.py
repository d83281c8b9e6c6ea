"""Samplers of PyTorch, of pytorch-metric-learning and of users."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.samplers import FixedSetOfTriplets, MPerClassSampler
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler

from dml.core.errors import UserError
from dml.data.custom_sampler import CustomBatches

LABELS = np.repeat(np.arange(6), 5)
N = len(LABELS)


class Drawn:
    """Rows from all generators, as code of users may draw them."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        for _ in range(self.length):
            drawn = random.randrange(N) + np.random.randint(N) + int(torch.randint(N, ()))
            yield drawn % N


def batches(build, batch_size=6, seed=4, steps=None):
    return CustomBatches(build, N, batch_size, seed, steps)


def rows_of(schedule, steps):
    return [schedule.batch(step).tolist() for step in steps]


OF_LIBRARIES = {
    "RandomSampler": lambda seed: RandomSampler(range(N)),
    "WeightedRandomSampler": lambda seed: WeightedRandomSampler([1.0] * N, 24),
    "BatchSampler": lambda seed: BatchSampler(RandomSampler(range(N)), 6, drop_last=False),
    "MPerClassSampler": lambda seed: MPerClassSampler(LABELS, 2, 6, length_before_new_iter=36),
    "FixedSetOfTriplets": lambda seed: FixedSetOfTriplets(LABELS, 10),
    "all generators": lambda seed: Drawn(24),
    "seed": lambda seed: np.random.default_rng(seed).integers(N, size=24),
    "generator": lambda seed: (row for row in np.random.permutation(N)),
}


@pytest.mark.parametrize("build", OF_LIBRARIES.values(), ids=[*OF_LIBRARIES])
def test_any_step_can_be_asked_for_alone(build):
    continuous = batches(build)
    steps = range(3 * continuous.steps_per_epoch)
    expected = rows_of(continuous, steps)
    state = torch.get_rng_state()
    for step in (steps[-1], 1, steps[len(steps) // 2], 0):
        torch.manual_seed(step)  # what else draws numbers does not matter
        assert batches(build).batch(step).tolist() == expected[step]
    torch.set_rng_state(state)
    assert rows_of(batches(build, seed=5), steps) != expected
    first_of_epochs = expected[:: continuous.steps_per_epoch]
    assert len({tuple(rows) for rows in first_of_epochs}) == 3
    assert not continuous.differs()


def test_an_epoch_is_an_iteration_without_its_last_part():
    schedule = batches(lambda seed: range(N - 1))
    assert schedule.steps_per_epoch == 4
    assert rows_of(schedule, range(4)) == np.arange(24).reshape(4, 6).tolist()
    in_batches = batches(lambda seed: [[0] * 6, [1] * 6, [2] * 3])
    assert in_batches.steps_per_epoch == 2
    assert rows_of(in_batches, range(2)) == [[0] * 6, [1] * 6]


@given(st.integers(1, 9), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_steps_per_epoch_repeats_or_cuts_iterations(steps, length):
    iterations = []

    def build(seed):
        iterations.append(seed)
        return [[len(iterations)] * 6] * length

    schedule = batches(build, steps=steps)
    first = [rows[0] for rows in rows_of(schedule, range(steps))]
    assert first == [1 + step // length for step in range(steps)]
    assert len(set(iterations)) == len(iterations)  # each iteration has a seed of its own
    assert schedule.batch(steps)[0] == first[-1] + 1  # the next epoch begins anew


def test_an_endless_sampler_needs_a_length():
    def endless(seed):
        while True:
            yield 1

    with pytest.raises(UserError, match=r"data.sampler: .*set protocol.steps_per_epoch"):
        batches(endless)
    assert batches(endless, steps=3).batch(100).tolist() == [1] * 6


def test_the_epoch_is_passed_to_a_sampler_that_asks_for_it():
    class Curriculum:
        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch] * 6)

    schedule = batches(lambda seed: Curriculum())
    assert rows_of(schedule, range(3)) == [[0] * 6, [1] * 6, [2] * 6]


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ([1, 2, 3], "yields fewer than 6 rows; use a smaller data.batch_size"),
        ([], "yields fewer than 6 rows"),
        ([[1, 2, 3], [1] * 6], "yields a batch of 3 images; set data.batch_size=3"),
        ([[1] * 8], "yields a batch of 8 images; set data.batch_size=8"),
        ([N] * 6, f"yields row {N}; the training images are rows 0 to {N - 1}"),
        ([-1] * 6, "yields row -1"),
        ([[N] * 6], f"yields row {N}"),
        (["a"] * 6, "yields 'a', which is no row: an integer"),
        (5, "it fails: 'int' object is not iterable"),
    ],
)
def test_what_does_not_fit_is_one_line(sampler, message):
    with pytest.raises(UserError, match=message) as raised:
        batches(lambda seed: sampler)
    assert str(raised.value).startswith("data.sampler: ")
    assert "\n" not in str(raised.value)


def test_an_error_of_the_sampler_names_its_line():
    class Wrong:
        def __iter__(self):
            raise KeyError("nothing")

    with pytest.raises(UserError, match=r"KeyError: 'nothing' \(test_custom_sampler.py, line "):
        batches(lambda seed: Wrong())


def test_draws_that_no_seed_decides_are_seen():
    generator = np.random.default_rng()
    assert batches(lambda seed: generator.integers(N, size=24)).differs()


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize(
    "row",
    [0.5, np.float64(1), torch.tensor(0.0), True, np.bool_(0), torch.tensor(True), "1", None],
)
def test_a_row_is_an_integer_and_is_not_made_one(row, in_batches):
    with pytest.raises(UserError, match=r"data.sampler: it yields .*, which is no row: an integer"):
        batches(lambda seed: [[0, row] if in_batches else row] * 9, batch_size=2).batch(0)


def test_a_generator_of_a_batch_is_named():
    with pytest.raises(UserError, match=r"yields <generator .*, which is no row: an integer"):
        batches(lambda seed: [(row for row in range(6))]).batch(0)
