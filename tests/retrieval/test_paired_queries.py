"""Two networks on the same queries: by hand, in any order of the images, and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.core.errors import UserError
from dml.retrieval.embeddings import SplitEmbeddings, load_embeddings
from dml.retrieval.paired_queries import USUAL, check_metrics, pair_queries, rank_queries

CPU = torch.device("cpu")
METRICS = (*USUAL, "precision_at_1", "recall_at_3", "mrr_at_r")
PATHS = np.array([f"/data/{name}.png" for name in "abcdefgh"])
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 3])  # the last has nothing to retrieve
NAMED = np.array(["wren", "owl", "tit", "jay"])[LABELS]


def write(path, values, labels=LABELS, paths=PATHS, **more):
    """A file of embeddings on a line, so that neighbors are seen by hand."""
    arrays = {"embeddings": np.array(values, dtype="float32")[:, None], "labels": labels, **more}
    if paths is not None:
        arrays["paths"] = paths
    np.savez(path, **arrays)
    return path


def rank(path, *more, metrics=METRICS):
    return rank_queries(path.name, [path, *more], metrics, CPU)


def compare(first, second, metrics=METRICS):
    return pair_queries(rank(first, metrics=metrics), rank(second, metrics=metrics))


GOOD = (0.0, 0.1, 0.2, 5.0, 5.1, 9.0, 9.1, 20.0)
BAD = (0.0, 0.1, 5.3, 5.0, 5.1, 9.0, 5.45, 20.0)  # two strangers beside the second class


def test_differences_won_lost_and_tied_by_hand(tmp_path):
    pairs = compare(write(tmp_path / "bad.npz", BAD), write(tmp_path / "good.npz", GOOD))
    score = pairs.summarize("recall_at_1")
    # By the worse network, the images at 5.3 and 5.45 find each other, and the one at 9.0 finds
    # 5.45, which is of its class: 5 of 7 are right.
    assert (score.won, score.lost, score.tied) == (2, 0, 5)
    assert score.first == pytest.approx(5 / 7)
    assert score.second == pytest.approx(1)
    assert score.difference.mean == pytest.approx(2 / 7)
    assert score.difference.clusters == 3
    differences = dict(zip("abcdefg", pairs.differences("recall_at_1"), strict=True))
    assert [name for name, value in differences.items() if value] == ["c", "g"]


def test_means_are_those_of_the_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    path = write(tmp_path / "x.npz", rng.normal(size=8))
    expected = load_embeddings(path, CPU).score([1, 3])
    pairs = compare(path, path)
    for name in METRICS[:-1]:
        assert pairs.summarize(name).first == pytest.approx(expected[name], abs=1e-12)


values = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 7.0]), min_size=8, max_size=8)


@settings(deadline=None, max_examples=30)
@given(values, values, st.permutations(range(8)))
def test_the_comparison_is_antisymmetric_in_any_order(tmp_path_factory, first, second, order):
    folder = tmp_path_factory.mktemp("pairs")
    left = write(folder / "a.npz", first)
    right = write(folder / "b.npz", np.array(second)[order], LABELS[order], PATHS[order])
    there, back = compare(left, right), compare(right, left)
    for metric in METRICS:
        score, reverse = there.summarize(metric), back.summarize(metric)
        assert (score.won, score.lost, score.tied) == (reverse.lost, reverse.won, reverse.tied)
        assert score.won + score.lost + score.tied == 7
        assert score.difference.mean == pytest.approx(-reverse.difference.mean, abs=1e-12)
        assert score.difference.half_width == pytest.approx(reverse.difference.half_width)
        assert there.rank_differences(metric).tolist() == [
            int(back.to_second[row]) for row in back.rank_differences(metric)
        ]


@settings(deadline=None, max_examples=30)
@given(values, st.permutations(range(8)))
def test_equal_runs_differ_nowhere(tmp_path_factory, same, order):
    """Distinct values: equal distances are ordered by row, which a permutation changes."""
    folder = tmp_path_factory.mktemp("equal")
    same = np.array(same) + 0.013 * np.arange(8) ** 2
    left = write(folder / "a.npz", same)
    right = write(folder / "b.npz", same[order], LABELS[order], PATHS[order])
    pairs = compare(left, right)
    for metric in METRICS:
        score = pairs.summarize(metric)
        assert (score.won, score.lost, score.tied) == (0, 0, 7)
        assert score.difference[:2] == (0, 0)
        assert not len(pairs.rank_differences(metric))


def test_data_may_stand_elsewhere_and_classes_may_have_names(tmp_path):
    moved = np.array([path.replace("/data/", "photos/of mine/") for path in PATHS])[::-1]
    left = write(tmp_path / "a.npz", BAD)
    right = write(tmp_path / "b.npz", GOOD[::-1], NAMED[::-1], moved)
    pairs = compare(left, right)
    assert pairs.to_second.tolist() == [*range(7, -1, -1)]
    assert [pairs.first.class_name(row) for row in range(8)] == list("00011223")
    assert [pairs.second.class_name(row) for row in range(8)] == NAMED[::-1].tolist()
    assert pairs.summarize("recall_at_1").won == 2


def test_scores_of_several_models_are_means_of_each_query(tmp_path):
    good, bad = write(tmp_path / "good.npz", GOOD), write(tmp_path / "bad.npz", BAD)
    both, worse = rank(good, bad), rank(bad, bad)
    score = pair_queries(worse, both).summarize("recall_at_1")
    assert (score.won, score.lost) == (2, 0)
    assert score.difference.mean == pytest.approx(1 / 7)


def test_queries_and_gallery_in_another_order(tmp_path):
    gallery = {
        "gallery_embeddings": np.array(BAD, dtype="float32")[:, None],
        "gallery_labels": LABELS,
        "gallery_paths": PATHS,
        "self_index": np.arange(8),
    }
    turned = {name: array[::-1] for name, array in gallery.items()}
    left = write(tmp_path / "a.npz", BAD, **gallery)
    right = write(
        tmp_path / "b.npz",
        BAD[::-1],
        LABELS[::-1],
        PATHS[::-1],
        **turned | {"self_index": np.arange(8)},
    )
    pairs = compare(left, right)
    assert pairs.first.nearest[:7].min() >= 8  # of the gallery, whose names follow the queries
    assert pairs.summarize("map_at_r").difference.mean == pytest.approx(0)
    nearest = pairs.to_first[pairs.second.nearest[pairs.to_second[:7], 0]]
    assert nearest.tolist() == pairs.first.nearest[:7, 0].tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paths": np.array([*PATHS[:7], "/data/z.png"])}, r"1 of 8 of a.npz .*missing.*/data/h"),
        ({"paths": None}, "8 of 8 of a.npz are missing from the other"),
        ({"labels": np.array([0, 0, 0, 1, 1, 2, 2, 2])}, "class 2 of b.npz are of several classes"),
        ({"labels": np.array([0, 0, 4, 1, 1, 2, 2, 3])}, "class 0 of a.npz are of several classes"),
        ({"paths": np.array(["/data/b.png", *PATHS[1:-1], "/data/a.png"])}, "named twice"),
    ],
)
def test_other_images_and_classes_are_refused(tmp_path, changes, message):
    if "twice" in message:
        names = np.array(["/data/a.png", "/data/a.png", *PATHS[2:]])
        left = write(tmp_path / "a.npz", GOOD, paths=names)
        changes = {"paths": names[::-1], "labels": LABELS[::-1]}
    else:
        left = write(tmp_path / "a.npz", GOOD)
    right = write(tmp_path / "b.npz", GOOD, **changes)
    with pytest.raises(UserError, match=message) as error:
        compare(left, right)
    assert "\n" not in str(error.value)


def test_missing_images_are_refused_from_either_side(tmp_path):
    left = write(tmp_path / "a.npz", GOOD)
    right = write(tmp_path / "b.npz", GOOD[:7], LABELS[:7], PATHS[:7])
    for pair in ((left, right), (right, left)):
        with pytest.raises(UserError, match=r"1 of 8 of a\.npz are missing"):
            compare(*pair)


def test_queries_that_find_themselves_are_refused_beside_others(tmp_path):
    gallery = {"gallery_embeddings": np.array(GOOD)[:, None], "gallery_labels": LABELS}
    gallery["gallery_paths"] = PATHS
    left = write(tmp_path / "a.npz", GOOD, **gallery, self_index=np.arange(8))
    right = write(tmp_path / "b.npz", GOOD, **gallery)
    with pytest.raises(UserError, match="self_index"):
        compare(left, right)


def test_models_of_other_images_have_no_mean(tmp_path):
    left = write(tmp_path / "a.npz", GOOD)
    with pytest.raises(UserError, match="not of the same images"):
        rank(left, write(tmp_path / "b.npz", GOOD, paths=PATHS[::-1]))


def test_embeddings_that_are_not_finite_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"x\.npz: .*finite"):
        rank(write(tmp_path / "x.npz", [np.nan, *GOOD[1:]]))


@pytest.mark.parametrize("name", ["recall_at_0", "map", "nmi", "mean_average_precision", ""])
def test_only_scores_of_each_query_are_metrics(name):
    with pytest.raises(UserError, match="is no score of each query"):
        check_metrics([name])


def test_one_class_has_no_interval(tmp_path):
    left = write(tmp_path / "a.npz", GOOD, np.zeros(8, int))
    right = write(tmp_path / "b.npz", BAD, np.zeros(8, int))
    assert compare(left, right).summarize("map_at_r").difference.half_width is None


def test_split_embeddings_of_other_ranks_give_other_scores():
    """MRR@R and Recall@3 by hand: ranks 2 and 3 of one relevant item, of two and of none."""
    from dml.retrieval.paired_queries import score_each
    from dml.retrieval.query_scores import score_queries

    embeddings = SplitEmbeddings(
        torch.tensor([[0.0], [1.0], [9.0]]),
        torch.tensor([0, 1, 2]),
        torch.tensor([[0.1], [0.2], [1.3], [1.1]]),
        torch.tensor([1, 0, 0, 1]),
    )
    scores = score_queries(embeddings)
    np.testing.assert_allclose(score_each(scores, "mrr_at_r"), [1 / 2, 1, np.nan])
    np.testing.assert_allclose(score_each(scores, "recall_at_1"), [0, 1, np.nan])
    np.testing.assert_allclose(score_each(scores, "recall_at_2"), [1, 1, np.nan])
