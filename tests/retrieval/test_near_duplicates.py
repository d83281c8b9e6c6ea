"""Near-duplicates of a file, compared with all pairs in float64."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from dml.core.errors import UserError
from dml.retrieval import indexed_pairs
from dml.retrieval.exact import near_pairs as near_pairs_module
from dml.retrieval.exact.near_pairs import find_equal_rows, near_pairs
from dml.retrieval.near_duplicates import find_near_duplicates, suggest_distance


def make(rows=1200, width=48, copies=0, noise=0.01, seed=0):
    """Unit rows, the last ones noisy copies of the first."""
    random = np.random.default_rng(seed)
    points = random.standard_normal((rows, width))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    near = points[:copies] + noise * random.standard_normal((copies, width))
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    return np.concatenate([points, near]).astype(np.float32)


def reference(points, limit):
    """All pairs within a limit, the nearest first, ties by their rows."""
    distances = pdist(points.astype(np.float64))
    first, second = np.triu_indices(len(points), 1)
    near = distances <= limit
    first, second, distances = first[near], second[near], distances[near]
    order = np.lexsort((second, first, distances))
    return first[order], second[order], distances[order]


def check(points, limit, most=1_000_000):
    first, second, distances = reference(points, limit)
    found = near_pairs(points, limit, most)
    assert found.total == len(first)
    np.testing.assert_allclose(found.distances, distances[:most], rtol=1e-12)
    assert np.array_equal(found.first, first[:most])
    assert np.array_equal(found.second, second[:most])
    return found


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.5, 1.2, 1.4, 3.0])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_pairs_are_those_of_all_distances(limit, dtype):
    points = make(rows=500, copies=60)
    points[300:310] = points[0]
    check(points.astype(dtype), limit)


def test_only_the_nearest_are_kept_and_all_are_counted():
    points = make(rows=800, copies=50)
    points[300:310] = points[0]
    for limit, most in ((1.4, 700), (1.4, 45), (3.0, 20)):
        found = check(points, limit, most)
        assert len(found.first) == most < found.total


def test_values_far_from_zero_and_of_other_sizes():
    random = np.random.default_rng(0)
    check((5 + 1e-3 * random.standard_normal((900, 6))).astype(np.float32), 6e-4)
    check(random.standard_normal((500, 20)) * 1e-25, 4e-25)
    wide = random.standard_normal((500, 20))
    wide[5] *= 1e30
    wide[6] = wide[5] * (1 + 1e-9)
    check(wide, 3.0)
    check(wide, 1e23)


def test_ties_of_whole_numbers():
    points = np.random.default_rng(0).integers(0, 3, (500, 5)).astype(np.float32)
    found = near_pairs(points, 1.0)
    first, _, distances = reference(points, 1.0)
    assert (found.total, len(found.first)) == (len(first), len(first))
    assert np.array_equal(found.distances, distances)


def test_equal_rows():
    points = np.float32([[0.0, 1], [2, 3], [-0.0, 1], [2, 3], [5, 5]])
    kept, copy_of = find_equal_rows(points)
    assert (kept.tolist(), copy_of.tolist()) == ([0, 1, 4], [0, 1, 0, 1, 4])
    found = near_pairs(np.ones((400, 3), np.float32), 0.0, max_pairs=1000)
    assert (found.total, len(found.first)) == (400 * 399 // 2, 1000)
    assert list(zip(found.first[:2], found.second[:2], strict=True)) == [(0, 1), (0, 2)]


def test_rows_of_one_digest_are_compared(monkeypatch):
    monkeypatch.setattr(near_pairs_module, "_mix", lambda bits: bits * np.uint64(0))
    points = make(rows=20, copies=0)
    points[7] = points[0]
    kept, copy_of = find_equal_rows(points)
    assert np.array_equal(points[copy_of], points)
    assert len(kept) == 19


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 0.05])
@pytest.mark.parametrize("copies", [20, 300, 1200])
def test_the_suggested_distance_tells_planted_copies(noise, copies):
    points = make(copies=copies, noise=noise)
    suggestion = suggest_distance(points)
    assert suggestion.is_separated
    found = near_pairs(points, suggestion.distance)
    is_right = found.second - found.first == 1200
    assert is_right.mean() >= 0.95
    assert is_right.sum() >= 0.95 * copies


@pytest.mark.parametrize("noise", [1e-3, 1e-2])
def test_the_suggested_distance_is_far_from_both_sides_of_the_gap(noise):
    """Rows that were not sampled may be somewhat farther apart, or nearer, than those that were."""
    points = make(copies=300, noise=noise)
    copies = np.linalg.norm(points[:300] - points[1200:], axis=1)
    others = pdist(points[:1200])
    ratio = others.min() / copies.max()
    suggested = suggest_distance(points).distance
    assert copies.max() * ratio**0.25 < suggested < others.min() / ratio**0.25


def test_several_levels_of_noise_in_one_file():
    parts = [make()]
    for noise in (1e-4, 1e-3, 1e-2, 0.04):
        parts.append(make(copies=100, noise=noise)[1200:])
    points = np.concatenate(parts)
    found = near_pairs(points, suggest_distance(points).distance)
    assert found.total == 100 * (5 * 4 // 2)


def test_nothing_is_suggested_without_copies():
    random = np.random.default_rng(0)
    made = [random.standard_normal((1500, width)) for width in (1, 2, 5, 20, 100)]
    made.append(np.exp(random.standard_normal((1500, 1))) * random.standard_normal((1500, 10)))
    centers = random.standard_normal((50, 32))
    made.append(centers[random.integers(0, 50, 1500)] + 0.2 * random.standard_normal((1500, 32)))
    for points in made:
        suggestion = suggest_distance(points)
        assert not suggestion.is_separated
        assert near_pairs(points, suggestion.distance).total < 10
        assert "--max-distance" in suggestion.reason


def write(path, points, **columns):
    np.savez(path, embeddings=points, **columns)
    return path


def test_groups_and_what_is_across(tmp_path):
    points = np.zeros((8, 2), np.float32)
    points[:, 0] = [0, 1, 2, 10, 10.5, 20, 20.25, 99]
    labels = np.array(["a", "a", "a", "b", "c", "d", "d", "e"])
    splits = np.array(["train"] * 5 + ["train", "test", "test"])
    made = find_near_duplicates(write(tmp_path / "x.npz", points, labels=labels, splits=splits), 1)
    assert made.groups["images"].tolist() == [2, 2, 3]
    assert made.groups["diameter"].tolist() == [0.25, 0.5, 2.0]
    assert made.groups["across"].tolist() == ["splits", "classes", ""]
    assert made.pairs["across"].tolist() == ["splits", "classes", "", ""]
    pairs = made.pairs[["group", "row", "other_row", "distance"]].to_numpy().tolist()
    assert pairs == [[1, 5, 6, 0.25], [2, 3, 4, 0.5], [3, 0, 1, 1], [3, 1, 2, 1]]
    assert made.count == 4


@pytest.mark.parametrize("queries", [4096, 97])
def test_an_index_finds_pairs_and_says_how_many(tmp_path, monkeypatch, queries):
    pytest.importorskip("faiss")
    monkeypatch.setattr(indexed_pairs, "QUERIES", queries)
    points = np.roll(make(copies=60), 300, axis=0)  # no pair is of the first rows alone
    path = write(tmp_path / "x.npz", points)
    exact = find_near_duplicates(path, 0.3)
    made = find_near_duplicates(path, 0.3, index=True)
    assert (tmp_path / "x.npz.faiss").exists()
    assert 0.9 < made.recall <= 1
    assert len(made.pairs.merge(exact.pairs)) == len(made.pairs) >= 0.9 * len(exact.pairs)
    assert find_near_duplicates(path, 1e-9, index=True).recall is None
    monkeypatch.setattr(indexed_pairs, "MOST_PAIRS", 7)
    kept, _ = indexed_pairs.approximate_pairs(path, points, 0.3)
    assert kept.total == made.count
    assert kept.distances.tolist() == np.sort(made.pairs["distance"])[:7].tolist()


@pytest.mark.parametrize("queries", [4096, 97])
def test_the_recall_of_an_index_that_misses_pairs(tmp_path, monkeypatch, queries):
    pytest.importorskip("faiss")
    monkeypatch.setattr(indexed_pairs, "QUERIES", queries)
    monkeypatch.setattr(indexed_pairs, "PAIR_ROWS", 1)
    points = make(rows=200)
    points[100:] = points[:100] + np.float32(1e-3)
    points[150:] = points[:50] + np.float32(2e-3)  # three of each image: a row has two pairs
    made = find_near_duplicates(write(tmp_path / "x.npz", points), 0.1, index=True)
    exact = find_near_duplicates(tmp_path / "x.npz", 0.1)
    assert made.recall == pytest.approx(len(made.pairs) / len(exact.pairs), abs=0.1)
    assert made.recall < 1


@pytest.mark.parametrize(
    ("points", "limit", "message"),
    [
        (np.ones((1, 3)), None, "single image"),
        (np.ones((3, 3)), -1, "at least 0"),
        (np.ones((3, 3)), float("nan"), "at least 0"),
        (np.full((3, 3), np.nan), None, "NaN or infinite"),
        (np.full((3, 3), np.inf), 1, "NaN or infinite"),
        (np.full((3, 3), 1e-170), 1, "float64 cannot hold"),
        (np.full((3, 3), 1e-320), None, "float64 cannot hold"),
        (np.full((3, 3), 1e160), None, "float64 cannot hold"),
    ],
)
def test_wrong_input(tmp_path, points, limit, message):
    with pytest.raises(UserError, match=message):
        find_near_duplicates(write(tmp_path / "x.npz", points), limit)


def test_without_a_gap_the_nearest_unequal_pair_is_named(tmp_path):
    points = make(rows=60, width=8, copies=3, noise=0, seed=4)  # three copies are equal
    paths = np.array([f"{row}.png" for row in range(len(points))])
    distances = reference(points, 9.0)[2]
    first, second, distances = (part[distances > 1e-3] for part in reference(points, 9.0))
    made = find_near_duplicates(write(tmp_path / "x.npz", points, paths=paths))
    assert made.count == 3
    line = next(line for line in made.describe() if line.startswith("nearest"))
    assert f"{first[0]}.png and {second[0]}.png: distance {distances[0]:.4g}," in line
    unit = points.astype(np.float64)
    similarity = unit[first[0]] @ unit[second[0]]
    assert f"cosine similarity {similarity:.4f};" in line
    limit = float(line.split("--max-distance ")[1].split()[0])
    assert distances[0] <= limit < 1.2 * distances[0]
    asked = find_near_duplicates(tmp_path / "x.npz", limit)
    listed = asked.pairs[["row", "other_row"]].to_numpy().tolist()
    assert [first[0], second[0]] in listed
    assert not asked.nearest


@pytest.mark.parametrize("scale", [1e-30, 9.99e-4, 1.0, 1e6])
def test_the_option_of_the_nearest_pair_is_above_its_distance(tmp_path, scale):
    write(tmp_path / "x.npz", scale * np.array([[0.0, 1], [0, 2], [9, 9]]))
    line = find_near_duplicates(tmp_path / "x.npz").nearest
    limit = float(line.split("--max-distance ")[1].split()[0])
    assert scale < limit <= 1.11 * scale
    assert line.startswith("0 and 1: distance ")


def test_equal_embeddings_alone_have_no_nearest_pair(tmp_path):
    made = find_near_duplicates(write(tmp_path / "x.npz", np.ones((5, 3))))
    assert made.count == 10
    assert not made.nearest


def test_one_file_under_two_names_is_no_copy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        Path(name).write_bytes(name.encode())
    os.symlink("a.png", "link.png")
    os.link("b.png", "hard.png")
    points = np.eye(4)[[0, 1, 0, 1, 0]]
    paths = ["a.png", "b.png", "link.png", "hard.png", "gone.png"]
    found = find_near_duplicates(write(tmp_path / "x.npz", points, paths=paths))
    assert found.count == 4, "gone.png is a copy of a.png and of its link"
    (note,) = [line for line in found.describe() if "under two names" in line]
    assert note.startswith("note: 2 pairs are one file under two names (links), such as a.png and")
    Path("link.png").unlink()
    Path("hard.png").unlink()
    assert not any("under two names" in line for line in found.describe())
