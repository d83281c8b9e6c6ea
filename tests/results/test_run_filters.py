import pytest

from dml.results.run_filters import parse_filters
from dml.results.run_list import list_runs
from tests.results.listed_runs import write_listed_run


@pytest.fixture
def runs(tmp_path):
    for loss, lr, score in (("ms", 1e-4, 0.4), ("ms", 1e-3, None), ("triplet", 1e-4, 0.5)):
        write_listed_run(tmp_path, score, loss=loss, lr=lr)
    return list_runs(tmp_path)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("loss=ms", 2),
        ("loss=ms,triplet", 3),
        ("loss=t* seed=0", 1),
        ("loss=MS state=finished", 1),
        ("optim.lr=0.0001", 2),
        ("lr=1e-4 loss=ms", 1),
        ("state=stopped,failed", 1),
        ("protocol.epochs=10 data=digits", 3),
        ("name=x", 0),
    ],
)
def test_runs_that_meet_all_conditions(runs, words, count):
    filters = parse_filters(words.split(), runs)
    assert sum(all(one.matches(run) for one in filters) for run in runs) == count
