from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from dml.data.loaders import ScheduledSampler
from dml.data.samplers import CategoryBatches, build_schedule

# Ten classes: six of category 0, three of 1, one of 2; two to nine images of each.
CATEGORIES = np.array([0, 1, 0, 0, 2, 0, 1, 0, 1, 0])
LABELS = np.repeat(np.arange(10), [3, 7, 2, 5, 4, 9, 2, 6, 8, 5])


def batches(size: int, m: int, count: int, seed: int = 0, **options) -> CategoryBatches:
    return CategoryBatches(
        LABELS, size, m, seed, categories=CATEGORIES, categories_per_batch=count, **options
    )


def test_a_batch_has_equally_many_classes_of_each_category_and_images_of_each_class():
    schedule = batches(24, 4, 2)  # 2 categories, 3 classes of each, 4 images of a class
    assert (schedule.batch_size, schedule.steps_per_epoch) == (24, 51 // 24)
    for step in range(50):
        labels = LABELS[schedule.batch(step)].reshape(2, 3, 4)
        assert (labels == labels[:, :, :1]).all()
        categories = CATEGORIES[labels[:, :, 0]]
        assert (categories == categories[:, :1]).all()
        assert categories[0, 0] != categories[1, 0]


def test_categories_are_drawn_by_their_numbers_of_classes():
    one = batches(3, 1, 1)
    drawn = Counter(int(CATEGORIES[LABELS[one.batch(step)[0]]]) for step in range(4000))
    for category, share in enumerate((0.6, 0.3, 0.1)):
        assert drawn[category] / 4000 == pytest.approx(share, abs=0.03)
    two = batches(2, 1, 2)
    pairs = Counter(tuple(sorted(CATEGORIES[LABELS[two.batch(s)]])) for s in range(4000))
    # one after the other: 0.6 · 0.3/0.4 + 0.3 · 0.6/0.7 and so on
    for pair, share in {(0, 1): 0.7071, (0, 2): 0.2167, (1, 2): 0.0762}.items():
        assert pairs[pair] / 4000 == pytest.approx(share, abs=0.03)


def test_classes_are_drawn_anew_and_all_are_reached():
    schedule = batches(4, 2, 1)  # two classes of one category
    drawn = [tuple(LABELS[schedule.batch(step)][::2]) for step in range(300)]
    counts = Counter(label for pair in drawn for label in pair)
    assert set(counts) == set(range(10))
    large = [set(pair) for pair in drawn if CATEGORIES[pair[0]] == 0]
    assert any(a & b for a, b in pairwise(large))  # no turn over the classes
    assert all(len(pair) == 2 for pair in large)
    # each of the six classes in a third of the batches of its category
    for label in np.flatnonzero(CATEGORIES == 0):
        assert counts[label] / len(large) == pytest.approx(1 / 3, abs=0.12)


def test_a_small_category_gives_all_its_classes_and_some_again():
    schedule = batches(30, 2, 3)  # five classes of each category
    for step in range(40):
        labels = LABELS[schedule.batch(step)].reshape(3, 5, 2)[:, :, 0]
        of_category = {int(CATEGORIES[row[0]]): row.tolist() for row in labels}
        assert len(set(of_category[0])) == 5  # of six
        assert set(of_category[1]) == {1, 6, 8}
        assert of_category[2] == [4] * 5


def test_a_small_class_gives_all_its_images_and_some_again():
    schedule, small = batches(8, 4, 1), set()
    for step in range(200):
        for rows in schedule.batch(step).reshape(2, 4):
            (label,) = set(LABELS[rows])
            images = np.flatnonzero(label == LABELS)
            assert len(set(rows)) == min(4, len(images))
            if len(images) < 4:
                small.add(int(label))
    assert small == {0, 2, 6}


def test_any_step_can_be_asked_for_alone():
    onward = [batches(8, 2, 2).batch(step).tolist() for step in range(30)]
    for step in (29, 3, 17, 0):
        assert batches(8, 2, 2).batch(step).tolist() == onward[step]
    assert [batches(8, 2, 2, seed=1).batch(step).tolist() for step in range(30)] != onward
    assert len({tuple(rows) for rows in onward}) == 30
    asked = batches(8, 2, 2, steps_per_epoch=100)
    assert asked.steps_per_epoch == 100
    assert asked.batch(17).tolist() == onward[17]


def test_processes_share_a_batch():
    whole = [pair for step in ScheduledSampler(batches(8, 2, 2), 0, 5, 9) for pair in step]
    shares = [[*ScheduledSampler(batches(8, 2, 2), 0, 5, 9, rank, 2)] for rank in (0, 1)]
    joined = [pair for both in zip(*shares, strict=True) for part in both for pair in part]
    assert joined == whole


def test_sizes_that_do_not_fit_name_their_option():
    def build(size: int, m: int, count: int) -> None:
        build_schedule(
            "category",
            LABELS,
            batch_size=size,
            images_per_class=m,
            seed=0,
            categories=CATEGORIES,
            categories_per_batch=count,
        )

    build(12, 2, 3)
    with pytest.raises(ValueError, match=r"categories_per_batch: 4 .* have 3$"):
        build(16, 2, 4)
    with pytest.raises(ValueError, match="batch_size: 10 is no multiple of 3 categories x 2"):
        build(10, 2, 3)
