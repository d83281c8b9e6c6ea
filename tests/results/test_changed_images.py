"""Runs whose images changed between them are not repeats of one configuration."""

import json

import pytest

from dml.config.compositions import compose_config
from dml.results.frame import IMAGES, load_runs, make_runs, read_runs, write_runs
from dml.results.run_list import rank_runs
from dml.runs.folder.stored_run import name_images, read_run
from tests.commands import report, runs
from tests.results.made_runs import write_run

BEFORE = {"name": "photos", "images": 100, "fingerprint": "a" * 16, "content": "c"}
MORE_IMAGES = {**BEFORE, "images": 104, "fingerprint": "b" * 16}
EDITED = {**BEFORE, "content": "d"}
CHANGES = {"more images": MORE_IMAGES, "edited images": EDITED}
FOLDER = ("data=folder", "data.root=/photos", "backbone=small_cnn")


def write(root, score, dataset, *words):
    """A finished run on images as `dataset.json` describes them."""
    cfg = compose_config([*FOLDER, f"outputs={root}", *words])
    folder = write_run(root, cfg, [[score]], None)
    if dataset is not None:
        (folder / "dataset.json").write_text(json.dumps(dataset))
    return folder


def scores_of_configurations(root):
    """The scores of each configuration, the best first."""
    scores = []
    for rows in rank_runs(load_runs(root)):
        scores.append(sorted(rows.table.map_at_r.round(6)))
    return sorted(scores)


@pytest.mark.promise(
    "runs.md",
    "images were added, removed or edited between two runs with equal options: the runs are not "
    "averaged, and `images` is listed among their options",
)
@pytest.mark.parametrize("change", CHANGES)
def test_seeds_on_changed_images_are_no_repeats(tmp_path, capsys, change):
    write(tmp_path, 0.4, BEFORE)
    write(tmp_path, 0.5, BEFORE, "seed=1")
    write(tmp_path, 0.9, CHANGES[change], "seed=2")
    assert scores_of_configurations(tmp_path) == [[40, 50], [90]]
    assert runs(["best", "--runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "images" in shown
    for dataset in (BEFORE, CHANGES[change]):
        assert f"{dataset['images']} (" in shown


@pytest.mark.parametrize("change", CHANGES)
def test_losses_on_changed_images_are_not_tested(tmp_path, capsys, change):
    folders = []
    for seed in (0, 1):
        folders.append(write(tmp_path, 0.4 + seed / 100, BEFORE, f"seed={seed}", "loss=ms"))
        other = ("loss=triplet", f"seed={seed}", "data.batch_size=64")
        folders.append(write(tmp_path, 0.6 + seed / 100, CHANGES[change], *other))
    ids = [folder.name.rpartition("-")[2] for folder in folders[:2]]
    assert runs(["compare", *ids, "--runs", str(tmp_path), "--no-queries"]) == 0
    shown = capsys.readouterr().out
    assert "no test: the runs differ in set of images" in shown
    assert f"{BEFORE['images']} (" in shown


@pytest.mark.parametrize("change", CHANGES)
def test_a_report_keeps_changed_images_apart(tmp_path, capsys, change):
    write(tmp_path, 0.4, BEFORE)
    write(tmp_path, 0.9, CHANGES[change], "seed=1")
    assert report(["single", "--runs", str(tmp_path), "--no-figures"]) == 0
    text = (tmp_path / "reports" / "single.md").read_text()
    assert "| images |" in text
    assert "| 100 (" in text
    assert "40.00, 90.00" not in text


def test_options_that_choose_other_images_are_no_change(tmp_path):
    """Nor are runs that do not say on which images they were."""
    for seed in (0, 1):
        write(tmp_path, 0.4, BEFORE, f"seed={seed}")
        write(tmp_path, 0.5, None, f"seed={seed + 2}")
        write(tmp_path, 0.6, MORE_IMAGES, f"seed={seed}", "data.root=/others")
        write(tmp_path, 0.7, EDITED, f"seed={seed}", "protocol=closed_set")
    loaded = load_runs(tmp_path)
    assert not any(IMAGES in options for options in loaded.options)
    assert len(rank_runs(loaded)) == 3


def test_a_sent_run_says_on_which_images_it_was(tmp_path):
    """Each is on the computer of another user."""
    sent = []
    for number, dataset in enumerate((BEFORE, MORE_IMAGES)):
        folder = write(tmp_path / str(number), 0.4, dataset, f"seed={number}")
        summary = json.loads((folder / "summary.json").read_text())
        summary["images"] = name_images(folder / "dataset.json")
        (folder / "summary.json").write_text(json.dumps(summary))
        (tmp_path / "runs.csv").write_text(write_runs([read_run(folder)]))
        sent += read_runs(tmp_path / "runs.csv")
    both = make_runs(sent)
    assert [options[IMAGES] for options in both.options] == [run.images for run in sent]
    assert both.table.configuration.nunique() == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"images": 3}', "\xff", '{"fingerprint": 1'])
def test_a_damaged_description_says_nothing(tmp_path, content):
    (tmp_path / "dataset.json").write_text(content, encoding="latin-1")
    assert name_images(tmp_path / "dataset.json") is None
    assert name_images(tmp_path / "absent.json") is None
