"""Small tiles and chunks, so that few items fill many of them."""

import pytest
import torch

from dml.retrieval.exact import order, plain_search, scaled_gallery


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(scaled_gallery, "TILE", 32)
    monkeypatch.setattr(order, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(plain_search.PlainSearch, "max_queries", 48)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
