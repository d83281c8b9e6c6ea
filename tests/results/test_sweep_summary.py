from dml.results.sweep_summary import summarize_sweep
from tests.results.listed_runs import write_listed_run


def text_of(folders, outputs, width=80):
    return "\n".join(one.plain for one in summarize_sweep(folders, outputs, width))


def test_the_table_of_a_sweep(tmp_path):
    scores = {"ms": 0.3, "triplet": 0.5}
    folders = [write_listed_run(tmp_path, score, loss=loss) for loss, score in scores.items()]
    folders += [write_listed_run(tmp_path, None, loss="failed"), tmp_path / "none"]
    text = text_of(folders, tmp_path)
    lines = text.splitlines()
    assert lines[0] == "2 runs, best first: digits, traditional, plain, small_cnn"
    assert lines[3].split()[:5] == ["triplet", "10.00", "→", "50.00", "1/10"]
    assert lines[4].split()[0] == "ms"
    (picture,) = tmp_path.glob("sweeps/loss-*/curves.png")
    assert f"curves      {picture}" in lines
    assert max(map(len, lines[:5])) <= 80
    assert str(folders[0]) in text_of(folders, tmp_path, 400)


def test_seeds_are_joined_below(tmp_path):
    folders = [
        write_listed_run(tmp_path, 0.3 + lr + seed / 100, lr=lr, seed=seed)
        for lr in (0.1, 0.2)
        for seed in (0, 1)
    ]
    text = text_of(folders, tmp_path)
    assert "50.50 ± 0.71" in text


def test_a_single_run_is_no_sweep(tmp_path):
    assert summarize_sweep([write_listed_run(tmp_path)], tmp_path, 80) == []
