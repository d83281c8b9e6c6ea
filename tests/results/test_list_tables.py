import pytest

from dml.results.list_tables import best_table, format_age, format_size, run_table
from dml.results.run_groups_by_seed import rank_groups
from dml.results.run_list import read_run
from tests.results.listed_runs import write_listed_run


@pytest.fixture
def runs(tmp_path):
    made = [
        write_listed_run(tmp_path, 0.3 + lr + seed / 10, loss=loss, lr=lr, seed=seed)
        for loss in ("ms", "triplet")
        for lr in (0.001, 0.01)
        for seed in (0, 1)
    ]
    made.append(write_listed_run(tmp_path, None, curve=(0.1, 0.25), name="halfway there"))
    return [read_run(path) for path in made]


@pytest.mark.parametrize("width", [80, 140])
def test_tables_fit_the_terminal(runs, width):
    for text in (*run_table(runs, width), *best_table(rank_groups(runs), width)):
        assert max(map(len, text.plain.splitlines())) <= width


def test_a_wide_list_has_it_all(runs):
    lines = run_table(runs, 140)[0].plain.splitlines()
    assert lines[0] == "9 runs: digits, traditional, plain, small_cnn"
    header = "id state name loss lr seed MAP@R R@1 epoch age size"
    assert lines[1].split() == header.split()
    assert lines[3].split()[1:8] == ["finished", "ms", "0.001", "0", "30.10", "50.10", "1/10"]
    stopped = next(line for line in lines if "stopped" in line)
    assert "halfway there" in stopped
    assert "25.00" in stopped  # the best so far


def test_a_narrow_list_joins_the_options(runs):
    plain = run_table(runs, 50)[0].plain
    assert "options" in plain
    assert "loss=triplet" in plain


def test_scores_of_validation_classes_are_called_so(tmp_path):
    run = read_run(write_listed_run(tmp_path, selected_on="validation"))
    assert "MAP@R val." in run_table([run], 140)[0].plain


def test_the_best_groups_come_first(runs):
    table, about = best_table(rank_groups(runs), 100)
    lines = table.plain.splitlines()
    assert lines[1].split() == ["rank", "loss", "lr", "runs", "MAP@R", "R@1", "ids"]
    assert lines[3].split()[:7] == ["1", "ms", "0.01", "2", "36.00", "±", "7.07"]
    assert "ranked by map_at_r on test images" in about.plain


def test_problems_stand_below(tmp_path):
    folder = write_listed_run(tmp_path)
    (folder / "summary.json").write_text("{")
    _, problem = run_table([read_run(folder)], 80)
    assert problem.plain.startswith(f"{folder.name[-8:]}  summary.json is damaged")


def test_units():
    assert [format_age(s) for s in (5, 61, 7200, 90_000)] == ["5 s", "1 min", "2 h", "1 d"]
    assert [format_size(n) for n in (7, 1_500, 25e6, 3e9)] == ["7 B", "1.5 kB", "25 MB", "3.0 GB"]
