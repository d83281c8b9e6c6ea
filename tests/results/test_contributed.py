"""Runs sent as CSV: read back as they were, or refused in one line."""

import os

import pandas as pd
import pytest

from dml.config.compositions import compose_config
from dml.results.catalog import list_cells
from dml.results.contributed_runs import without_folders
from dml.results.frame import estimate, make_frame, read_runs, write_runs
from dml.runs.folder.stored_run import read_run
from tests.commands import report
from tests.killed_process import KILLED, die_at
from tests.results.made_runs import write_run

VALUES = [0.2205, 0.2215, 0.2210]


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """A file of one run, made in a folder of another machine."""
    (cell,) = list_cells("mft_table1", ["data=cub", "loss=mfcwms"])
    cfg = compose_config([*cell.overrides, f"outputs={tmp_path / 'theirs'}"])
    made = write_run(tmp_path / "theirs", cfg, [[v] * 4 for v in VALUES], VALUES)
    path = tmp_path / "mft_table1_runs.csv"
    path.write_text(write_runs([read_run(made)]))
    monkeypatch.setattr("dml.results.catalog.list_cells", lambda *_, **more: [cell])
    return path


def test_a_sent_run_stands_beside_the_papers_numbers(sent, tmp_path):
    frame = make_frame(read_runs(sent))
    concatenated = estimate(frame[frame.evaluation == "concatenated"], "map_at_r")
    assert concatenated.values == pytest.approx([100 * value for value in VALUES])
    assert str(tmp_path) not in sent.read_text(), "paths of the sender's machine"
    words = ["--runs", str(tmp_path / "none"), "--no-figures", "--results", str(sent)]
    assert report(["mft_table1", *words]) == 0
    reports = tmp_path / "none" / "reports"
    assert (reports / "mft_table1_runs.csv").read_text() == sent.read_text()
    shown = pd.read_csv(reports / "mft_table1.csv")
    assert (shown["mean"].notna() & shown.printed_text.notna()).any()


def test_places_of_the_senders_machine_are_not_sent(tmp_path):
    """Paths as options hold them; texts that only contain a slash stay."""
    options = {
        "a": ["/home/ann/photos", "~/x.pth", "C:\\ann\\x.pth", "file:///home/ann/x.pth"],
        "b": {
            "c": "sqlite:////home/ann/runs.db",
            "d": "sqlite:///ann/runs.db",
            "e": "/home/ann/x/",
        },
        "n": ["https://host/ann.pth", "imagenet", "timm/vit: a/b", "", 3, None, "postgresql://h/a"],
    }
    sent = without_folders(options)
    assert sent["a"] == ["photos", "x.pth", "x.pth", "x.pth"]
    assert sent["b"] == {"c": "runs.db", "d": "runs.db", "e": "x"}
    assert sent["n"] == options["n"]
    assert without_folders(sent) == sent


def test_a_run_on_ones_own_images_is_sent_without_their_place(tmp_path):
    photos, weights = tmp_path / "annslaptop" / "photos", tmp_path / "ann" / "x.pth"
    words = ["data=folder", f"data.root={photos}", "backbone=resnet50"]
    cfg = compose_config([*words, f"backbone.weights={weights}", f"outputs={tmp_path}"])
    text = write_runs([read_run(write_run(tmp_path, cfg, [[0.5]], None))])
    assert "annslaptop" not in text
    assert str(tmp_path) not in text
    (tmp_path / "runs.csv").write_text(text)
    (run,) = read_runs(tmp_path / "runs.csv")
    assert run.content["data"]["reader"]["root"] == "photos"
    assert run.content["backbone"]["weights"] == "x.pth"


TABLES = ["mft_table1_runs.csv", "mft_table1.csv"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("after_a_report", [False, True])
def test_a_file_of_somebody_else_is_not_replaced(sent, tmp_path, capsys, name, after_a_report):
    """A file like ours that was put into the folder of reports, beside our page or alone."""
    words = ["mft_table1", "--runs", str(tmp_path / "none"), "--no-figures"]
    if after_a_report:
        assert report(words) == 0
    theirs = tmp_path / "none/reports" / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_bytes(sent.read_bytes())
    assert report(words) == 1
    assert f"{name} exists, and this command did not write it" in capsys.readouterr().err
    assert theirs.read_bytes() == sent.read_bytes()
    assert report([*words, "--overwrite"]) == 0
    assert report(words) == 0


def test_a_report_after_a_killed_one(sent, tmp_path):
    """Whichever files a killed process has replaced, the next report replaces them all."""
    words = ["mft_table1", "--runs", str(tmp_path / "none"), "--no-figures"]
    assert report(words) == 0
    assert die_at("before_rename:2", report, [*words, "--results", str(sent)]) == KILLED
    assert report(words) == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("data", "dat", "run 1: config is not of a run: data.name: Field required"),
        ("folder,", "", "run 1: "),
        ("", None, "No such file"),
    ],
)
def test_damaged_files_are_refused(sent, tmp_path, capsys, old, new, reason):
    text = sent.read_text()
    os.remove(sent)
    if new is not None:
        sent.write_text(text.replace(old, new))
    assert report(["mft_table1", "--results", str(sent), "--runs", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {sent} cannot be read, ")
    assert reason in error
    assert error.count("\n") == 1


def rewritten(path, change):
    """Changes the summary of the sent run, as a text editor would."""
    (run,) = read_runs(path)
    change(run.summary)
    path.write_text(write_runs([run]))


@pytest.mark.parametrize("name", ["map_at_r", "precision_at_1", "recall_at_4"])
@pytest.mark.parametrize("value", [22.05, -0.1, 1.0001])
@pytest.mark.parametrize("is_concatenated", [False, True])
def test_a_score_that_is_no_fraction_is_refused(
    sent, tmp_path, capsys, name, value, is_concatenated
):
    def change(summary):
        results = summary.concatenated.repeats if is_concatenated else summary.jobs
        results[1].metrics[name] = value

    rewritten(sent, change)
    assert report(["mft_table1", "--results", str(sent), "--runs", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert f"run 1: repeat {int(is_concatenated)}, fold {int(not is_concatenated)}: " in error
    assert f"{name} is {value:g}, not a fraction from 0 to 1" in error
    assert error.count("\n") == 1


def test_counts_are_no_scores(sent):
    rewritten(sent, lambda summary: summary.jobs[0].metrics.update(queries=5924.0))
    assert len(read_runs(sent)) == 1


def test_a_model_that_is_listed_twice_is_refused(sent, tmp_path, capsys):
    rewritten(sent, lambda summary: summary.jobs.append(summary.jobs[5]))
    assert report(["mft_table1", "--results", str(sent), "--runs", str(tmp_path)]) == 1
    assert "run 1: repeat 1, fold 1: is listed twice" in capsys.readouterr().err


@pytest.mark.parametrize("is_perfect", [False, True])
def test_repeats_with_equal_scores_have_a_note(sent, tmp_path, caplog, is_perfect):
    """Repeat 2 was copied from repeat 0. Of perfect scores nothing is said."""

    def copy(summary):
        for first, last in zip(summary.jobs[:4], summary.jobs[-4:], strict=True):
            assert (first.repeat, last.repeat, first.fold) == (0, 2, last.fold)
            if is_perfect:
                first.metrics.update(dict.fromkeys(first.metrics, 1.0))
            last.metrics.update(first.metrics)

    rewritten(sent, copy)
    assert report(["mft_table1", "--results", str(sent), "--runs", str(tmp_path)]) == 0
    expected = f"{sent}, run 1: repeats 0 and 2 have equal scores"
    assert (expected in caplog.text) != is_perfect


def test_values_of_the_environment_are_never_inserted(sent, tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", "a-secret")
    text = sent.read_text().replace('""name"": null', '""name"": ""${oc.env:A_KEY}""')
    sent.write_text(text.replace('""setting"": null', '""setting"": ""${oc.env:A_KEY}""'))
    assert report(["mft_table1", "--results", str(sent), "--runs", str(tmp_path)]) == 0
    files = [path.read_text() for path in (tmp_path / "reports").iterdir()]
    assert any("${oc.env:A_KEY}" in text for text in files)
    assert all("a-secret" not in text for text in files)


def test_formulas_and_escapes_of_a_sent_run_are_text(sent, tmp_path, capsys):
    name = "=cmd|' /C calc'!A0 \x1b]0;title\x07 [a](http://b) <img src=x>"
    (run,) = read_runs(sent)
    run.folder = type(run.folder)("=a/b/c")
    run.content["setting"] = name
    run.content["name"] = name
    sent.write_text(write_runs([run]))
    assert "\n'=a/b/c," in sent.read_text()
    (read,) = read_runs(sent)
    assert str(read.folder) == "=a/b/c"
    assert read.content["name"] == name
    words = ["--runs", str(tmp_path / "none"), "--no-figures", "--results", str(sent)]
    assert report(["mft_table1", *words]) == 0
    printed = capsys.readouterr()
    assert "\x1b]" not in printed.out + printed.err
    reports = tmp_path / "none" / "reports"
    for path in reports.iterdir():
        text = path.read_text("utf-8")
        assert "\x1b" not in text
        assert "\n=" not in text
        assert "<img src=x" not in text or path.suffix == ".csv"
    assert "[a](http://b)" not in (reports / "mft_table1.md").read_text("utf-8")
