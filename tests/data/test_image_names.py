"""Paths in one array are those of a list."""

import os
from pathlib import Path

import numpy as np
import pytest

from dml.data import image_names
from dml.data.image_index import ImageIndex
from dml.data.image_names import ImageNames, take_images, texts_of

PATHS = [
    Path(name)
    for name in (
        "a.jpg",
        "/b/ü.png",
        os.fsdecode(b"c/\xff.jpg"),
        "s.tar#512+7/d.png",
        "e",
        "long " * 9,
    )
]


@pytest.fixture(autouse=True, params=[2, 10_000])
def part(request, monkeypatch):
    monkeypatch.setattr(image_names, "PART", request.param)


@pytest.fixture
def names():
    return ImageNames.of(PATHS)


def test_is_a_sequence_of_the_paths(names):
    assert len(names) == len(PATHS)
    assert [*names] == PATHS
    assert [names[row] for row in range(-6, 6)] == [PATHS[row] for row in range(-6, 6)]
    assert [*names.texts()] == [*texts_of(PATHS)] == [*map(str, PATHS)]
    assert PATHS[3] in names
    for row in (6, -7):
        with pytest.raises(IndexError):
            names[row]
    assert names == PATHS
    assert names == ImageNames.of(map(str, PATHS))
    assert names != PATHS[:5]
    assert names != ImageNames.of(PATHS[::-1])
    assert names != ImageNames.of([Path("b.jpg"), *PATHS[1:]])


@pytest.mark.parametrize("some", [slice(1, 5), slice(None, None, -2), slice(4, 2), slice(9)])
def test_slices(names, some):
    assert [*names[some]] == PATHS[some]


@pytest.mark.parametrize("rows", [[], [3], [5, 0, 0, 4, 2], range(6)])
def test_takes_rows(names, rows):
    expected = [PATHS[row] for row in rows]
    taken = names.take(np.array(rows, int))
    assert [*taken] == expected
    assert [*taken.take(np.arange(len(expected))[::-1])] == expected[::-1]
    assert take_images(PATHS, np.array(rows, int)) == expected
    assert ImageNames.join([names, taken, names]) == [*PATHS, *expected, *PATHS]


def test_an_index_holds_paths_in_an_array():
    index = ImageIndex("x", PATHS, np.arange(6), np.array(["train"] * 6))
    assert isinstance(index.images, ImageNames)
    assert index.files is index.images
    assert ImageIndex("x", [], np.arange(0), np.array([], str)).files is None
    impossible = [Path("\ud800.jpg")] * 6  # no file can have such a name
    assert ImageIndex("x", impossible, np.arange(6), np.array(["train"] * 6)).files == impossible


def test_takes_few_bytes_for_a_name(names):
    assert len(names.data) == sum(len(os.fsencode(path)) for path in PATHS)
    assert names.ends.nbytes == 8 * len(PATHS)
