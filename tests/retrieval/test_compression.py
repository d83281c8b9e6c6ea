"""Codes of vectors: their layout, special values, and the text by which a file is read."""

import json
import re

import numpy as np
import pytest

from dml.core.compression_forms import parse_form
from dml.retrieval.compression import Compression

FORMS = [
    "pca5",
    "project5",
    "truncate5",
    "float16",
    "int8",
    "binary",
    "pca5+int8",
    "truncate11+binary",
]


@pytest.fixture
def points():
    random = np.random.default_rng(0)
    return random.normal(size=(300, 13)).astype(np.float32)


@pytest.mark.parametrize("name", FORMS)
def test_codes_have_the_bytes_of_the_form_and_are_read_by_the_text(points, name):
    made = Compression.fit(name, points, "them")
    codes = made.encode(points)
    assert codes.nbytes == len(points) * parse_form(name).count_bytes(13)
    read = Compression.from_text(made.to_text())
    read.check_codes(codes)
    assert np.array_equal(read.decode(codes), made.decode(codes))
    assert np.array_equal(read.encode(points), codes)
    assert np.array_equal(read.make_queries(points), made.make_queries(points))
    assert read.fitted_on == "them"


@pytest.mark.parametrize("name", FORMS)
def test_decoded_vectors_have_the_same_codes(points, name):
    """A row of a file as a query finds rows with equal codes at distance 0."""
    made = Compression.fit(name, points, "")
    codes = made.encode(points)
    assert np.array_equal(made.round_queries(made.decode(codes)), codes)


def test_int8_is_the_nearest_of_256_levels_and_clips_what_is_outside(points):
    made = Compression.fit("int8", points, "")
    codes = made.encode(points)
    assert codes.min(axis=0).tolist() == [0] * 13
    assert codes.max(axis=0).tolist() == [255] * 13
    step = (points.max(axis=0) - points.min(axis=0)) / 255
    error = np.abs(made.decode(codes) - points)
    assert (error <= step * 0.5001).all()
    assert (error.max(axis=0) >= step * 0.45).all()  # rounded, not cut
    outside = made.encode(np.array([[-1e9] * 13, [1e9] * 13], np.float32))
    assert outside.tolist() == [[0] * 13, [255] * 13]
    assert np.linalg.norm(made.decode(codes) - points, axis=1).max() <= made.largest_error


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "a coordinate is the same in all vectors: `int8` stores it exactly",
)
def test_a_constant_dimension_is_stored_exactly(points):
    points[:, 3] = 0.25
    made = Compression.fit("int8", points, "")
    assert (made.decode(made.encode(points))[:, 3] == 0.25).all()


def test_signs_are_bits_the_first_one_highest_and_zero_is_not_above_zero():
    made = Compression.fit("binary", np.ones((2, 10)), "")
    vector = np.array([[0.0, -0.0, 1, -1, 1, 1, 1, 1, 1e-30, -1]])
    codes = made.encode(vector)
    assert codes.tolist() == [[0b00101111, 0b10000000]]
    assert made.decode(codes).tolist() == [[-1, -1, 1, -1, 1, 1, 1, 1, 1, -1]]


def test_queries_of_signs_have_the_length_of_vectors_of_signs(points):
    made = Compression.fit("binary", points, "")
    lengths = np.linalg.norm(made.make_queries(points), axis=1)
    assert lengths == pytest.approx(13**0.5, rel=1e-6)
    assert made.make_queries(np.zeros((1, 13))).tolist() == [[0] * 13]


def test_whitened_vectors_have_unit_variance_and_no_correlation(points):
    mixed = points @ np.random.default_rng(1).normal(size=(13, 13)) + 5
    made = Compression.fit("pca13", mixed, "")
    assert not made.is_unit
    reduced = made.reduce(mixed)
    assert reduced.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-4)
    assert np.cov(reduced.T) == pytest.approx(np.eye(13), abs=1e-3)


def test_projected_vectors_keep_their_distances(points):
    """All of them in all dimensions; in fewer, what the principal components hold."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    made = Compression.fit("project13", unit, "")
    reduced = made.reduce(unit)
    expected = np.linalg.norm(unit[1:] - unit[0], axis=1)
    assert np.linalg.norm(reduced[1:] - reduced[0], axis=1) == pytest.approx(expected, rel=1e-5)
    variances = np.linalg.eigvalsh(np.cov(unit.T))[::-1][:5]
    assert Compression.fit("project5", unit, "").reduce(unit).var(axis=0, ddof=1) == pytest.approx(
        variances, rel=1e-4
    )


@pytest.mark.parametrize("name", ["pca5", "truncate5"])
def test_vectors_of_length_1_get_it_again_and_zeros_stay_zero(points, name):
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    made = Compression.fit(name, unit, "")
    assert np.linalg.norm(made.reduce(unit), axis=1) == pytest.approx(1, abs=1e-6)
    if name.startswith("truncate"):
        cut = np.concatenate([np.zeros((1, 5)), np.ones((1, 8))], axis=1) / 8**0.5
        assert made.reduce(cut).tolist() == [[0] * 5]
    longer = Compression.fit(name, 3 * unit, "")
    assert np.linalg.norm(longer.reduce(3 * unit), axis=1).max() > 1.1


def test_of_many_rows_evenly_spaced_ones_fit_a_form(points, monkeypatch):
    monkeypatch.setattr("dml.retrieval.compression.FITTED_ROWS", 3)
    made = Compression.fit("int8", points, "")
    assert made.low.tolist() == points[[0, 149, 299]].min(axis=0).tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("form"),
        lambda content: content.update(form="pickle"),
        lambda content: content.update(form=["int8"]),
        lambda content: content.update(dimensions=14),
        lambda content: content.update(dimensions="13"),
        lambda content: content.update(dimensions=-1),
        lambda content: content.update(dimensions=10**30),
        lambda content: content.update(unit=1),
        lambda content: content.update(low="????"),
        lambda content: content.update(low=content["step"][:8]),
        lambda content: content.update(low=3),
        lambda content: content.update(step="AADAfw==" * 13),  # NaN
        lambda content: content.pop("step"),
    ],
)
def test_a_damaged_text_is_refused(points, change):
    content = json.loads(Compression.fit("int8", points, "").to_text())
    change(content)
    with pytest.raises(ValueError, match="compression: it is damaged"):
        Compression.from_text(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", "[" * 100_000])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="compression: it is damaged"):
        Compression.from_text(text)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("pac64", "pca64"),
        ("PCA64", "pca64"),
        ("pca", "pca128"),
        ("int4", "int8"),
        ("Int8", "int8"),
        ("int8+pca64", "pca64+int8"),
        ("pca64int8", "pca64+int8"),
        ("trunc32", "truncate32"),
        ("binray", "binary"),
    ],
)
def test_the_nearest_form_is_suggested(name, suggestion):
    with pytest.raises(ValueError, match=rf"none of .* mean '{re.escape(suggestion)}'"):
        parse_form(name)


@pytest.mark.parametrize(
    "name",
    ["", "+", "pca0", "pca-1", "pca1.5", "pca64+", "+int8", "pca64+pca32", "int8+int8", "pca٣"],
)
def test_no_form(name):
    with pytest.raises(ValueError, match="is none of"):
        parse_form(name)
