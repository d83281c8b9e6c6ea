import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.data.samplers import (
    BalancedBatches,
    ClassStreamBatches,
    RandomBatches,
    augmentation_seeds,
    build_schedule,
    class_pool,
    count_without_pairs,
)

SAMPLERS = ("random", "class_stream", "balanced")
LABELS = np.repeat(np.arange(10), [3, 7, 1, 5, 4, 9, 2, 6, 8, 5])


@given(st.integers(1, 50), st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_random_uses_no_image_twice_in_an_epoch(batch_size: int, seed: int):
    schedule = RandomBatches(LABELS, batch_size, seed)
    assert schedule.steps_per_epoch == 50 // batch_size
    for epoch in (0, 1):
        steps = range(schedule.steps_per_epoch * epoch, schedule.steps_per_epoch * (epoch + 1))
        rows = np.concatenate([schedule.batch(step) for step in steps])
        assert len(rows) == len(set(rows)) == schedule.steps_per_epoch * batch_size


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_any_step_can_be_asked_for_alone(sampler: str):
    def schedule(seed: int = 4):
        return build_schedule(sampler, LABELS, batch_size=8, images_per_class=4, seed=seed)

    continuous = schedule()
    onward = [continuous.batch(step).tolist() for step in range(30)]
    for step in (29, 3, 17, 0):
        assert schedule().batch(step).tolist() == onward[step]
    assert [schedule(5).batch(step).tolist() for step in range(30)] != onward
    assert len({tuple(rows) for rows in onward}) == 30


def test_class_stream_runs_through_all_classes_before_any_returns():
    schedule = ClassStreamBatches(LABELS, batch_size=12, images_per_class=4, seed=0)
    stream = [
        int(LABELS[rows[0]]) for step in range(20) for rows in schedule.batch(step).reshape(3, 4)
    ]
    for turn in range(6):
        assert sorted(stream[10 * turn : 10 * turn + 10]) == list(range(10))
    assert stream[:10] != stream[10:20]


def test_single_images_are_drawn_as_by_choice():
    schedule = ClassStreamBatches(LABELS, batch_size=12, images_per_class=1, seed=3)
    for step in range(20):
        rows = schedule.batch(step)
        rng = np.random.default_rng([3, 1, step])
        classes = (np.flatnonzero(label == LABELS) for label in LABELS[rows])
        assert [rng.choice(images, replace=False) for images in classes] == rows.tolist()


@pytest.mark.parametrize(("sampler", "size"), [(ClassStreamBatches, 8), (BalancedBatches, 40)])
def test_images_are_repeated_only_in_classes_that_are_too_small(sampler, size):
    schedule, small = sampler(LABELS, batch_size=size, images_per_class=4, seed=0), set()
    for step in range(25):
        for rows in schedule.batch(step).reshape(-1, 4):
            (label,) = set(LABELS[rows])
            if len(set(rows)) < 4:
                small.add(label)
    assert small == set(np.flatnonzero(np.bincount(LABELS) < 4))


def test_balanced_batches_hold_different_classes_with_as_many_images_each():
    schedule = BalancedBatches(LABELS, batch_size=16, images_per_class=4, seed=0)
    for step in range(40):
        labels = LABELS[schedule.batch(step)].reshape(4, 4)
        assert (labels == labels[:, :1]).all()
        assert len(set(labels[:, 0])) == 4


def test_balanced_uses_all_classes_and_images_evenly():
    labels = np.repeat(np.arange(6), 8)
    schedule = BalancedBatches(labels, batch_size=6, images_per_class=2, seed=3)
    # 2 steps are a turn over the classes, 4 turns hand out every image of a class once.
    for cycle in range(3):
        rows = np.concatenate([schedule.batch(step) for step in range(8 * cycle, 8 * cycle + 8)])
        assert sorted(rows) == list(range(48))


def test_steps_per_epoch_is_kept_by_every_sampler():
    for sampler in SAMPLERS:
        options = {"batch_size": 8, "images_per_class": 4, "seed": 0}
        asked = build_schedule(sampler, LABELS, steps_per_epoch=100, **options)
        default = build_schedule(sampler, LABELS, **options)
        assert (asked.steps_per_epoch, default.steps_per_epoch) == (100, 6)
        assert np.array_equal(asked.batch(37), default.batch(37))


def test_draws_differ_between_seeds_steps_and_items_and_repeat_when_asked_again():
    seeds = [augmentation_seeds(seed, step, 40) for seed in range(3) for step in range(50)]
    values = [value for step in seeds for value in step]
    assert len(set(values)) == len(values)
    assert all(0 <= value < 2**63 for value in values)
    assert augmentation_seeds(1, 2, 3) == augmentation_seeds(1, 2, 3)


@pytest.mark.parametrize("images", [1, 4, 6])
def test_pools_repeat_images_only_in_classes_that_are_too_small(images: int):
    repeated = set()
    for number in range(20):
        rows = np.array([row for row, _ in class_pool(LABELS, images, 0, number)])
        for label, drawn in enumerate(rows.reshape(-1, images)):
            assert set(LABELS[drawn]) == {label}
            if len(set(drawn)) < images:
                repeated.add(label)
    assert repeated == set(np.flatnonzero(np.bincount(LABELS) < images))


def test_pools_of_all_classes_differ_between_seeds_and_numbers():
    pools = [class_pool(LABELS, 4, seed, number) for seed in (0, 1) for number in range(5)]
    for pool in pools:
        assert [int(LABELS[row]) for row, _ in pool] == np.repeat(np.arange(10), 4).tolist()
    rows = {tuple(row for row, _ in pool) for pool in pools}
    seeds = {seed for pool in pools for _, seed in pool}
    assert (len(rows), len(seeds)) == (10, 10 * 40)
    assert class_pool(LABELS, 4, 1, 2) == pools[7]


def test_batches_without_a_pair_are_counted():
    labels = np.repeat(np.arange(3), 4)
    stream = build_schedule("class_stream", labels, batch_size=4, images_per_class=2, seed=0)
    expected = sum(len(set(labels[stream.batch(step)])) == 1 for step in range(60))
    assert count_without_pairs(stream, labels, 60) == expected > 0
    single = build_schedule("balanced", labels, batch_size=3, images_per_class=1, seed=0)
    assert count_without_pairs(single, labels, 5) == 5  # no two images of a class
    balanced = build_schedule("balanced", labels, batch_size=4, images_per_class=2, seed=0)
    assert count_without_pairs(balanced, labels, 5) == 0
