import math

from dml.runs.folder.summary import combine_scores


def test_intervals_are_over_repeats_of_means_over_folds():
    values = [[0.1, 0.3], [0.3, 0.5], [0.5, 0.7]]  # means .2 .4 .6
    results = [
        {"repeat": repeat, "metrics": {"map_at_r": value}}
        for repeat, folds in enumerate(values)
        for value in folds
    ]
    found = combine_scores(results)["map_at_r"]
    assert math.isclose(found["mean"], 0.4)
    assert math.isclose(found["std"], 0.2)
    assert math.isclose(found["ci95"], 4.302653 * 0.2 / math.sqrt(3), rel_tol=1e-6)
    alone = combine_scores(results[:2])["map_at_r"]
    assert (alone["ci95"], alone["std"], alone["repeats"]) == (None, None, 1)
