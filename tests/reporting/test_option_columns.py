from dataclasses import replace

from dml.reporting.option_columns import common_names, group_key, option_columns
from dml.reporting.run_list import read_run
from tests.reporting.listed_runs import write_listed_run


def test_only_options_in_which_runs_of_equal_names_differ(tmp_path):
    runs = [
        read_run(write_listed_run(tmp_path, loss=loss, lr=lr, seed=seed))
        for loss in ("ms", "triplet")
        for lr in (0.001, 0.01)
        for seed in (0, 1)
    ]
    columns = option_columns(runs)
    assert list(columns) == ["loss", "lr"]  # not loss.scale, which differs by the loss
    assert columns["lr"][:4] == ["0.001", "0.001", "0.01", "0.01"]
    assert common_names(runs) == "digits, traditional, plain, small_cnn"
    assert [group_key(one) == group_key(runs[0]) for one in runs[:3]] == [True, True, False]


def test_the_options_of_a_search_are_not_taken_for_names(tmp_path):
    plain, other = (read_run(write_listed_run(tmp_path, loss=loss)) for loss in ("ms", "triplet"))
    search = {"search.name": "grid", "space.loss": {"lr": 1}}
    searched = replace(plain, options={**plain.options, **search})
    columns = option_columns([plain, searched, other])
    assert columns["loss"] == ["ms", "ms", "triplet"]
    assert columns["search.name"] == ["", "grid", ""]


def test_unreadable_runs_have_empty_cells(tmp_path):
    (broken := write_listed_run(tmp_path, seed=7)).joinpath("config.yaml").write_text("a: [")
    paths = (write_listed_run(tmp_path, lr=0.1), broken, write_listed_run(tmp_path, lr=0.2))
    assert option_columns([read_run(path) for path in paths]) == {"lr": ["0.1", "", "0.2"]}
    assert common_names([read_run(broken)]) == ""
