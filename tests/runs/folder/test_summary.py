import math

import pytest

from dml.config.check import check
from dml.config.identity import protocol_id
from dml.config.schema import Config
from dml.runs.folder.summary import combine_scores


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("protocol=pfml", ("pfml_standard", "test")),
        ("protocol=pfml data.label_noise=0.2", ("pfml_noise20", "test")),
        ("protocol=metrix", ("metrix_standard", "test")),
        ("protocol=conventional", ("conventional", "test")),
        ("protocol=traditional", ("traditional", "test")),
        ("protocol=mlrc", ("mlrc", "validation")),
        ("protocol=mlrc_ccp", ("mlrc", "validation")),
    ],
)
def test_protocol_ids(composed, overrides, expected):
    config = check(composed(*overrides.split()), Config)
    assert (protocol_id(config), config.protocol.selected_on) == expected


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
