from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from dml.data.image_index import ImageIndex
from dml.data.label_noise import add_label_noise


def index() -> ImageIndex:
    labels = np.repeat(np.arange(20), 50)
    roles = np.where(labels < 10, "train", "test")
    return ImageIndex("x", np.zeros((1000, 1, 1, 3), np.uint8), labels, roles)


def test_exactly_the_asked_share_is_wrong_and_stays_within_the_view():
    view = index().subset("train").of_classes([2, 3, 5, 7])
    noisy, report = add_label_noise(view, 0.2, seed=1)
    clean_classes = view.classes[view.labels]
    noisy_classes = noisy.classes[noisy.labels]
    assert np.array_equal(noisy.rows, view.rows)
    assert np.count_nonzero(clean_classes != noisy_classes) == 40 == report.changed
    assert (report.rate, report.images, report.seed) == (0.2, 200, 1)
    assert set(noisy_classes) == {2, 3, 5, 7}
    outside = np.setdiff1d(np.arange(1000), view.rows)
    assert np.array_equal(noisy.index.labels[outside], view.index.labels[outside])


@pytest.mark.parametrize(("rate", "images", "changed"), [(0.2, 8, 2), (0.3, 8, 2), (0.1, 4, 0)])
def test_the_number_of_wrong_labels_is_rounded(rate, images, changed):
    labels = np.arange(images) % 3
    view = ImageIndex("x", np.zeros((images, 1, 1, 3), np.uint8), labels, ["train"] * images)
    noisy, report = add_label_noise(view.subset("train"), rate, seed=0)
    assert report.changed == np.count_nonzero(noisy.index.labels != labels) == changed


def test_every_other_class_is_as_likely():
    labels = np.repeat([1, 4, 9], 400)  # numbers with gaps
    view = ImageIndex("x", np.zeros((1200, 1, 1, 3), np.uint8), labels, ["train"] * 1200)
    noisy, _ = add_label_noise(view.subset("train"), 0.5, seed=0)
    moves = Counter(zip(labels.tolist(), noisy.index.labels.tolist(), strict=True))
    wrong = {(a, b): count for (a, b), count in moves.items() if a != b}
    assert wrong.keys() == set(permutations([1, 4, 9], 2))
    assert min(wrong.values()) > 70  # of 100 expected


def test_wrong_labels_are_symmetric():
    view = index().subset("train")
    noisy, _ = add_label_noise(view, 0.9, seed=0)
    changed = view.labels != noisy.labels
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (view.labels[changed], noisy.labels[changed]), 1)
    assert np.array_equal(np.diag(confusion), np.zeros(10))
    off = confusion[~np.eye(10, dtype=bool)]  # 450 wrong labels in 90 cells: 5 expected in each
    assert 60 < np.sum((off - 5.0) ** 2 / 5) < 130
