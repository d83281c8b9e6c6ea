"""Lists of runs: filters, tables that fit the terminal, ranks, sweeps, JSON."""

import json

import pytest
from scipy import stats

from dml.results.frame import load_runs, one_per_run
from dml.results.run_comparison import compare_runs
from dml.results.run_list import best_table, format_age, rank_runs, run_table, to_json
from dml.results.run_selection import find_run, select_runs
from dml.results.sweep_summary import summarize_sweep
from tests.stored_runs import write_stored_run


@pytest.fixture
def rows(tmp_path):
    """Two losses with two learning rates and two seeds each, and a run that was stopped."""
    for loss in ("ms", "triplet"):
        for lr in (0.001, 0.01):
            for seed in (0, 1):
                score = 0.3 + lr + seed / 10 - (loss == "triplet") / 20
                write_stored_run(tmp_path, score, loss=loss, lr=lr, seed=seed)
    write_stored_run(tmp_path, None, curve=(0.1, 0.25, 0.2), name="halfway there")
    return load_runs(tmp_path)


@pytest.fixture
def runs(rows):
    return rows.select(one_per_run(rows.table))


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("loss=ms,triplet", 9),
        ("loss=t* seed=0", 2),
        ("loss=MS state=finished", 4),
        ("lr=1e-2 loss=ms", 2),
        ("state=stopped,failed", 1),
        ("protocol.epochs=10 data=digits", 9),
        ("name=x", 0),
    ],
)
def test_runs_that_meet_all_conditions(runs, words, count):
    chosen = select_runs(runs, words.split())
    assert len(chosen.table) == len(chosen.distinct) == count


def test_a_wide_list_has_it_all_and_a_narrow_one_the_names(runs):
    lines = run_table(runs, 140)[0].plain.splitlines()
    assert lines[0] == "9 runs: digits, traditional, plain, small_cnn"
    header = "id state name loss lr seed MAP@R untrained P@1 epoch age size"
    assert lines[1].split() == header.split()
    finished = next(line for line in lines if "finished" in line and "30.10" in line)
    assert finished.split()[1:8] == ["finished", "ms", "0.001", "0", "30.10", "10.00", "50.10"]
    stopped = next(line for line in lines if "stopped" in line)
    assert "halfway there" in stopped
    assert "25.00" in stopped  # the best so far
    assert "2/10" in stopped  # the last epoch
    assert stopped.split()[-8:-5] == ["0", "25.00", "10.00"]  # seed, best so far, before training
    narrow = run_table(runs, 50)[0].plain.splitlines()
    assert max(map(len, narrow)) <= 50
    assert narrow[1].split() == ["id", "state", "loss", "seed", "MAP@R"]
    left_out = " ".join(narrow).partition("not shown (narrow terminal): ")[2]
    assert left_out.split(", ") == ["name", "lr", "untrained", "P@1", "epoch", "age", "size"]


def test_the_best_configurations_come_first(rows):
    lines = best_table(rank_runs(rows), 110)[0].plain.splitlines()
    assert lines[1].split() == ["rank", "loss", "lr", "runs", "MAP@R", "P@1", "ids"]
    assert lines[3].split()[:7] == ["1", "ms", "0.01", "2", "31.00,", "41.00", "51.00,"]
    assert "ranked by map_at_r on test images" in lines[-1]


def test_an_option_is_named_by_whole_parts(tmp_path):
    """`epochs` is no end of `warmup_epochs`, and `lr` none of `head_lr`."""
    for warmup, epochs in ((3, 60), (60, 3), (4, 5)):
        folder = write_stored_run(tmp_path, None, epochs=epochs, seed=warmup)
        text = (folder / "config.yaml").read_text()
        more = f"optim:\n  warmup_epochs: {warmup}\n  head_lr: {epochs}\n"
        (folder / "config.yaml").write_text(text.replace("optim:\n", more))
    runs = load_runs(tmp_path)
    for words, count in (
        ("epochs=3", 1),
        ("protocol.epochs=60", 1),
        ("warmup_epochs=60", 1),
        ("warmup_epochs=3,4", 2),
        ("lr=3,60", 0),
        ("lr=0.001", 3),
    ):
        assert len(select_runs(runs, words.split()).table) == count, words


def test_configurations_are_ranked_by_their_means_within_a_selection(tmp_path):
    scores = {"ms": (0.3, 0.65), "triplet": (0.5, 0.55), "margin": (0.6, 0.1)}
    for loss, values in scores.items():
        for seed, score in enumerate(values):
            write_stored_run(tmp_path, score, loss=loss, seed=seed)
    for loss, score in (("ms", 0.7), ("contrastive", 0.8)):
        write_stored_run(tmp_path, score, loss=loss, selected_on="validation", seed=7)
    lines = best_table(rank_runs(load_runs(tmp_path)), 140)[0].plain.splitlines()
    ranks = [line.split()[:2] for line in lines[3:8]]
    assert ranks == [
        ["1", "triplet"],
        ["2", "ms"],
        ["3", "margin"],
        ["1", "contrastive"],
        ["2", "ms"],
    ]


def test_joined_models_count_neither_in_the_order_nor_in_the_tests(tmp_path):
    """Their scores are higher, and those of a run's single models are compared."""
    scores = {"ms": (0.3, 0.32), "triplet": (0.5, 0.56)}
    for loss, values in scores.items():
        for seed, score in enumerate(values):
            folder = write_stored_run(tmp_path, score, curve=(), loss=loss, seed=seed)
            summary = json.loads((folder / "summary.json").read_text())
            high = {"map_at_r": 0.95 - score, "precision_at_1": 0.9}
            joined = {"repeats": [{"repeat": 0, "metrics": high}], "embedding_size": 128}
            summary |= {"evaluation": "separated", "concatenated": joined}
            (folder / "summary.json").write_text(json.dumps(summary))
    rows = load_runs(tmp_path)
    assert len(rows.table) == 8
    lines = best_table(rank_runs(rows), 140)[0].plain.splitlines()
    assert [line.split()[1:5] for line in lines[3:5]] == [
        ["triplet", "2", "50.00,", "56.00"],
        ["ms", "2", "30.00,", "32.00"],
    ]
    runs = rows.select(one_per_run(rows.table))
    ids = runs.table[runs.table.seed == 0].sort_values("loss").id  # ms, triplet
    chosen = [find_run(word, runs) for word in ids]
    shown = "\n".join(text.plain for text in compare_runs(chosen, rows, tmp_path, 140))
    p_value = stats.ttest_ind(*scores.values(), equal_var=False).pvalue
    assert f"of 2 and 2 models: +22.00 points, p = {p_value:.3g} " in shown
    row = next(line for line in shown.splitlines() if line.startswith("MAP@R"))
    assert row.split()[1:] == ["30.00", "50.00", "+20.00"]


def test_json_has_everything(runs):
    records = json.loads(to_json(runs))
    assert len(records) == 9
    first = next(one for one in records if one["loss"] == "ms" and one["state"] == "finished")
    assert first["precision_at_1"] == pytest.approx(first["map_at_r"] + 20)
    assert first["options"]["optim.lr"] in (0.001, 0.01)
    assert {one["state"]: one["map_at_r"] for one in records}["stopped"] is None


def test_problems_stand_below(tmp_path):
    folder = write_stored_run(tmp_path)
    (folder / "summary.json").write_text("{")
    _, problem = run_table(load_runs(tmp_path), 80)
    assert problem.plain.startswith(f"{folder.name[-8:]}  summary.json is damaged")


def sweep_text(folders, outputs):
    return "\n".join(one.plain for one in summarize_sweep(folders, outputs, 80))


def test_the_table_of_a_sweep(tmp_path):
    scores = {"ms": 0.3, "triplet": 0.5}
    folders = [write_stored_run(tmp_path, score, loss=loss) for loss, score in scores.items()]
    folders += [write_stored_run(tmp_path, None, loss="failed"), tmp_path / "none"]
    lines = sweep_text(folders, tmp_path).splitlines()
    assert lines[0].startswith("2 runs, best first")
    assert lines[1].split()[:6] == ["id", "state", "loss", "MAP@R", "untrained", "P@1"]
    assert lines[3].split()[1:6] == ["finished", "triplet", "50.00", "10.00", "70.00"]
    assert lines[4].split()[2] == "ms"
    (picture,) = tmp_path.glob("sweeps/loss-*/curves.png")
    assert any(line.endswith(f" {picture}") for line in lines)
    assert max(map(len, lines[:5])) <= 80
    assert lines[-1].endswith(f" {tmp_path}/*/*/*-<id>")
    assert not sweep_text(folders[:1], tmp_path)


def test_a_sweep_is_ordered_over_all_rows(tmp_path):
    """Of losses with several seeds, the rows are not ordered loss by loss."""
    scores = {("ms", 0): 0.3, ("ms", 1): 0.6, ("triplet", 0): 0.5, ("triplet", 1): 0.55}
    folders = []
    for (loss, seed), score in scores.items():
        folders.append(write_stored_run(tmp_path, score, loss=loss, seed=seed))
    lines = sweep_text(folders, tmp_path).splitlines()
    assert lines[0].startswith("4 runs, best first: ")
    assert [line.split()[4] for line in lines[3:7]] == ["60.00", "55.00", "50.00", "30.00"]


def test_scores_of_other_selections_are_not_mixed_in_the_order(tmp_path):
    folders = [write_stored_run(tmp_path, 0.3, loss="ms", selected_on="validation")]
    folders += [write_stored_run(tmp_path, 0.9, loss="triplet")]
    folders += [write_stored_run(tmp_path, 0.5, loss="margin", selected_on="validation")]
    lines = sweep_text(folders, tmp_path).splitlines()
    assert lines[0].startswith("3 runs, best first for each selection: ")
    assert [line.split()[2] for line in lines[3:6]] == ["triplet", "margin", "ms"]


@pytest.mark.promise(
    "concepts/selection_on_test.md", "`dml runs compare` tests none of their differences"
)
@pytest.mark.parametrize("count", [2, 3])
def test_runs_of_other_selections_are_shown_without_a_test(tmp_path, count):
    folders = []
    for seed in (0, 1):
        for selected_on, loss in (("test", "ms"), ("validation", "ms"), ("test", "triplet")):
            options = {"selected_on": selected_on, "loss": loss, "seed": seed}
            folders.append(write_stored_run(tmp_path, 0.5 - seed / 10, **options))
    table = load_runs(tmp_path)
    compared = [find_run(str(folder), table) for folder in folders[:count]]
    text = "\n".join(map(str, compare_runs(compared, table, tmp_path, 100)))
    assert "no test: the runs differ in selection, not in their methods alone" in text
    assert "50.00" in text
    assert "Welch" not in text
    compared = [find_run(str(folders[i]), table) for i in (0, 2)]
    assert "Welch" in "\n".join(map(str, compare_runs(compared, table, tmp_path, 100)))


@pytest.mark.parametrize(("epochs", "count"), [(1, 2), (10, 0)])
def test_a_sweep_says_that_scores_still_rise(tmp_path, epochs, count):
    """The best epoch of these runs is 1."""
    folders = []
    for loss in ("ms", "triplet"):
        folders.append(write_stored_run(tmp_path, loss=loss, epochs=epochs))
    text = sweep_text(folders, tmp_path)
    assert (f"note: {count} of 2 runs are best at their last epoch" in text) == bool(count)
    assert ("still rise" in text) == bool(count)


@pytest.mark.parametrize("selected_on", ["test", "validation"])
def test_scores_before_training_are_those_of_test_images(tmp_path, selected_on):
    """Validation scores of the epochs are no test scores."""
    write_stored_run(tmp_path, None, curve=(0.125, 0.25), selected_on=selected_on)
    (row,) = load_runs(tmp_path).table.to_dict("records")
    assert row["score"] == 25
    assert row.get("untrained_map_at_r") == (12.5 if selected_on == "test" else None)


def test_a_run_that_was_continued_without_its_first_evaluation_has_no_score_before_training(
    tmp_path,
):
    folder = write_stored_run(tmp_path, None)
    history = folder / "history.csv"
    header, _, *rest = history.read_text().splitlines()
    history.write_text("\n".join([header, *rest, ""]))
    assert "untrained_map_at_r" not in load_runs(tmp_path).table


@pytest.fixture
def three_losses(tmp_path):
    """Three losses with three seeds each; returns their scores in percent and all rows."""
    scores = {"ms": (0.30, 0.31, 0.33), "triplet": (0.32, 0.33, 0.36), "margin": (0.5, 0.52, 0.51)}
    for loss, values in scores.items():
        for seed, score in enumerate(values):
            write_stored_run(tmp_path, score, loss=loss, seed=seed, name=f"{loss}{seed}")
    return scores, load_runs(tmp_path)


def compared(all_rows, names, folder, width=100):
    runs = all_rows.select(one_per_run(all_rows.table))
    chosen = [find_run(name, runs) for name in names]
    return [text.plain for text in compare_runs(chosen, all_rows, folder, width)]


def test_more_than_two_runs_are_tested_in_pairs(three_losses, tmp_path):
    scores, all_rows = three_losses
    names = [f"{loss}0" for loss in scores]
    table, _, tests, curves = compared(all_rows, names, tmp_path / "comparisons")
    assert "difference" not in table
    row = next(line for line in table.splitlines() if line.startswith("MAP@R"))
    assert row.split()[1:] == ["30.00", "32.00", "50.00"]
    p_values = []
    pairs = (("ms", "triplet"), ("ms", "margin"), ("triplet", "margin"))
    for first, second in pairs:
        p_values.append(stats.ttest_ind(scores[first], scores[second], equal_var=False).pvalue)
    expected = sorted(p_values)
    corrected = {expected[0]: 3 * expected[0], expected[2]: expected[2]}  # Holm's factors: 3, 2, 1
    corrected[expected[1]] = max(3 * expected[0], 2 * expected[1])
    rows = [line.split() for line in tests.splitlines()[2:5]]
    assert [row[2] for row in rows] == ["+2.33", "+19.67", "+17.33"]
    for row, p_value in zip(rows, p_values, strict=True):
        assert float(row[3]) == pytest.approx(p_value, rel=5e-3)
        assert float(row[4]) == pytest.approx(corrected[p_value], rel=5e-3)
    assert "Holm" in tests
    assert (tmp_path / "comparisons").joinpath(curves.split()[-1]).is_file()


def test_seeds_of_a_configuration_are_tested_together(three_losses, tmp_path):
    _, all_rows = three_losses
    tests = compared(all_rows, ["ms0", "ms1", "margin0"], tmp_path)[2]
    assert len(tests.splitlines()) == 2 + 1 + 2  # titles, line, a pair, the note below
    assert "no test" in compared(all_rows, ["ms0", "ms1", "ms2"], tmp_path)[2]


def test_a_narrow_comparison_names_the_runs_that_it_hides(three_losses, tmp_path):
    _, all_rows = three_losses
    names = [f"{loss}{seed}" for loss in ("ms", "triplet", "margin") for seed in range(3)]
    shown = compared(all_rows, names, tmp_path, width=60)
    assert max(len(line) for line in shown[0].splitlines()) <= 60
    assert "not shown (narrow terminal): " in shown[0]
    (picture,) = tmp_path.glob("*.png")
    assert picture.name.endswith(".png")
    assert "-and-5-" in picture.name


def test_ages():
    assert [format_age(s) for s in (5, 61, 7200, 90_000)] == ["5 s", "1 min", "2 h", "1 d"]
