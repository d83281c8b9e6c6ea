"""Compositions that are stored in the cache: equal to new ones, and made anew if damaged."""

from __future__ import annotations

import pytest

from dml.config import compositions
from dml.config.compositions import compose_cells, compose_config, identity_of

NAME = "mft_table12"


def forget():
    compositions._compose.cache_clear()
    identity_of.cache_clear()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """An empty folder for the cache, and nothing in memory."""
    monkeypatch.setattr(compositions, "_cache_folder", lambda: tmp_path)
    forget()
    yield tmp_path
    forget()


def test_stored_compositions_are_those_that_are_composed(cache_folder):
    words = ["data=cub", "loss=ms", "loss.alpha=3"]
    written = compose_cells(NAME), identity_of("data=cub"), compose_config(words)
    assert any(cache_folder.glob("*.json"))
    forget()
    assert (compose_cells(NAME), identity_of("data=cub"), compose_config(words)) == written
    # with an option of a user the cells are composed and not stored
    composed = compose_cells(NAME, ["seed=0"])
    assert [options for _, options in composed] == [options for _, options in written[0]]


@pytest.mark.parametrize("damage", ["null", "3", "[1]", "{}", "", "\x00", "a\nnull"])
def test_a_damaged_composition_is_made_anew(cache_folder, damage):
    expected = compose_cells(NAME)
    files = {path: path.read_text() for path in cache_folder.glob("*.json")}
    for path in files:
        path.write_text(damage)
    forget()
    assert compose_cells(NAME) == expected
    assert any(path.read_text() == text for path, text in files.items())
