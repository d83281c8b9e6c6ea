"""One seed for all generators that code of users may draw from."""

import random

import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils import common_functions

from dml.data.generators import seeded


def draw():
    return (
        random.random(),
        np.random.random(),
        torch.rand(()).item(),
        common_functions.NUMPY_RANDOM.random_sample(),
    )


@pytest.mark.parametrize("of_pml", [np.random, np.random.RandomState(7)], ids=["numpy", "other"])
def test_draws_follow_the_seed_and_go_on_afterwards(monkeypatch, of_pml):
    monkeypatch.setattr(common_functions, "NUMPY_RANDOM", of_pml)
    with seeded(1):
        first = draw()
    draw()
    with seeded(2):
        other = draw()
    with seeded(1):
        again = draw()
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))
    assert common_functions.NUMPY_RANDOM is of_pml


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_outside_notices(fails):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    expected = [draw()[:3], draw()[:3]]
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    seen = [draw()[:3]]
    try:
        with seeded(9):
            draw()
            assert not fails
    except AssertionError:
        pass
    seen.append(draw()[:3])
    assert seen == expected
