"""What a miner may return, which is called by all methods in the same way."""

from __future__ import annotations

import pytest
import torch

from dml.core.errors import ConfigError
from dml.methods.mining import mine_pairs

EMBEDDINGS, LABELS = torch.eye(4), torch.tensor([0, 0, 1, 1])
ROWS = torch.arange(2)
WRONG = {
    "2 objects": (ROWS, ROWS),
    "a Tensor": LABELS[:, None] == LABELS,
    "a dict": {"anchors": ROWS},
    "a list among them": ([0], [1], [0], [2]),
    "a ndarray among them": (ROWS.numpy(),) * 3,
    r"a tensor of torch.float32 and shape \[2\]": (ROWS.float(),) * 4,
    r"a tensor of torch.bool and shape \[2\]": (ROWS > 0,) * 4,
    r"shape \[1, 2\]": (ROWS[None],) * 3,
    "lengths 2, 1, 2, 2": (ROWS, ROWS[:1], ROWS, ROWS),
    "lengths 2, 2, 2, 1": (ROWS, ROWS, ROWS, ROWS[:1]),
    "lengths 2, 2, 1": (ROWS, ROWS, ROWS[:1]),
}


@pytest.mark.parametrize("problem", WRONG)
def test_what_is_no_tuple_of_positions_is_refused(problem):
    with pytest.raises(ConfigError, match=f"loss.miner: must return .*it returned .*{problem}"):
        mine_pairs(lambda *batch: WRONG[problem], EMBEDDINGS, LABELS)


@pytest.mark.parametrize("mined", [(ROWS,) * 3, (ROWS, ROWS, ROWS[:1], ROWS[:1]), [ROWS.int()] * 4])
def test_triplets_and_pairs_are_passed_as_they_are(mined):
    assert mine_pairs(lambda *batch: mined, EMBEDDINGS, LABELS) is mined


@pytest.mark.parametrize("nothing", [None, (), []])
def test_nothing_is_a_tuple_without_pairs(nothing):
    mined = mine_pairs(lambda *batch: nothing, EMBEDDINGS, LABELS)
    assert [len(part) for part in mined] == [0] * 4
