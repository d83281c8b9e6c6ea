"""The best of a gallery that passes by in tiles."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dml.retrieval.cpu_search.packing import Packing
from dml.retrieval.cpu_search.running_top import SPARE, RunningTop


def offered(tiles, m, *, threads=1, order=None, transposed=False, cautious=False):
    """What is kept of tiles of scores (n×c each), which pass by in some order."""
    n, c = tiles[0].shape
    top = RunningTop(n, m, c * len(tiles), cautious=cautious)
    order = order or range(len(tiles))

    def offer(place):
        number = order[place]
        tile = tiles[number].T.contiguous().T if transposed else tiles[number]
        top.offer(tile.numpy(), number * c, (place + 1) * c)
        if place % 3 == 2:
            top.raise_thresholds((place + 1) * c)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(offer, range(len(tiles))))
    return top.finish()


def check(tiles, m, found):
    """Every query that is not reported holds its m best, whichever of equal ones."""
    scores, rows, missed = found
    everything = torch.cat(tiles, dim=1)
    sure = torch.ones(len(scores), dtype=torch.bool)
    sure[missed] = False
    expected = everything.topk(m, dim=1).values
    assert torch.equal(scores[sure], expected[sure])
    assert torch.equal(everything.gather(1, rows.long())[sure], scores[sure])
    for row in rows[sure].tolist():
        assert len(set(row)) == m


@given(
    st.integers(0, 999),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 12),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_the_best_are_kept(seed, n, c, count, distinct, transposed, cautious, data):
    generator = torch.Generator().manual_seed(seed)
    tiles = [torch.randn(n, c, generator=generator) for _ in range(count)]
    if distinct:  # many ties
        tiles = [(tile * distinct).round() / distinct for tile in tiles]
    m = data.draw(st.integers(1, c * count))
    order = data.draw(st.permutations(range(count)))
    found = offered(tiles, m, order=order, transposed=transposed, cautious=cautious)
    check(tiles, m, found)
    if cautious:
        assert not len(found[2])


@pytest.mark.parametrize("fall", [-1.0, 0.0, 1.0])
def test_unfair_tiles_are_survived(fall):
    """Tiles that get ever worse, better or stay equal: the opposite of a random sample."""
    generator = torch.Generator().manual_seed(1)
    tiles = [torch.randn(50, 40, generator=generator) + fall * place for place in range(12)]
    check(tiles, 30, offered(tiles, 30))
    check(tiles, 30, offered(tiles, 30, cautious=True))


def test_equal_scores_do_not_fill_the_memory(monkeypatch):
    taken = []
    pack = Packing.pack

    def packed(self, query, column, score):
        taken.append(len(query))
        return pack(self, query, column, score)

    monkeypatch.setattr(Packing, "pack", packed)
    tiles = [torch.zeros(20, 400) for _ in range(6)]
    check(tiles, 5, offered(tiles, 5))
    assert max(taken) <= 20 * (5 + SPARE)


def test_threads_may_offer_at_once():
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):
        tiles = [torch.randn(30, 64, generator=generator) for _ in range(9)]
        check(tiles, 10, offered(tiles, 10, threads=4))


def test_random_tiles_rarely_have_to_be_scored_again():
    """The margin of the thresholds is 4.5 deviations: a few in a million, in theory."""
    generator = torch.Generator().manual_seed(3)
    tiles = [torch.randn(2_000, 100, generator=generator) for _ in range(10)]
    assert len(offered(tiles, 40)[2]) <= 2
