"""Runs sent as CSV: read back as they were, or refused in one line."""

import csv
import json
import re

import pytest

from dml.cli.report_command import main
from dml.core.errors import UserError
from dml.results.catalog import list_cells
from dml.results.frame import estimate, make_frame, read_runs, write_runs
from dml.results.report_files import write_reports
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import read_run
from tests.results.made_runs import write_run

VALUES = [0.2205, 0.2215, 0.2210]


@pytest.fixture
def cell():
    return list_cells("mft_table1", ["data=cub", "loss=mfcwms"])[0]


@pytest.fixture
def sent(cell, tmp_path, monkeypatch):
    """A file of one run, made in a folder that no longer exists."""
    cfg = cell.config.copy()
    cfg.outputs = str(tmp_path / "theirs")
    made = write_run(tmp_path / "theirs", cfg, [[v] * 4 for v in VALUES], VALUES)
    right = made.with_name(RunFolder.of(cfg, cfg).path.name)
    made.rename(right)
    path = tmp_path / "mft_table1_runs.csv"
    path.write_text(write_runs([read_run(right)]))
    monkeypatch.setattr("dml.results.catalog.list_cells", lambda *more: [cell])
    return path


def change(path, **columns):
    with open(path, newline="") as file:
        line = next(csv.DictReader(file))
    for name, edit in columns.items():
        line[name] = edit(line[name])
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        writer.writeheader()
        writer.writerow(line)


def test_a_sent_run_is_read_back_with_its_numbers(sent, tmp_path):
    frame = make_frame(read_runs(sent))
    concatenated = estimate(frame[frame.evaluation == "concatenated"], "map_at_r")
    assert concatenated.values == pytest.approx([100 * value for value in VALUES])
    assert write_runs(read_runs(sent)) == sent.read_text()
    assert str(tmp_path) not in sent.read_text(), "paths of the sender's machine"


def test_a_sent_run_stands_beside_the_papers_numbers(sent, tmp_path):
    files = write_reports(["mft_table1"], tmp_path, tmp_path / "page", False, [sent])
    assert [path.name for path in files][-1] == "mft_table1_runs.csv"
    with open(tmp_path / "page" / "mft_table1.csv", newline="") as file:
        found = [(line["mean"], line["printed"]) for line in csv.DictReader(file)]
    assert any(mean and printed for mean, printed in found)
    with pytest.raises(UserError, match="holds runs of mft_table1, not of mft_table2"):
        write_reports(["mft_table2"], tmp_path, tmp_path / "page", False, [sent])


def edited(*keys, value):
    """Sets an entry of a text of JSON."""

    def edit(text):
        content = node = json.loads(text)
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
        return json.dumps(content)

    return edit


def scored(value):
    return edited("jobs", 0, "metrics", "map_at_r", value=value)


SECRET = edited("experiment", "setting", value="${oc.env:A_KEY}")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"config": SECRET}, r"run 1: experiment\.setting holds \$\{"),
        # a text that YAML would read as a table with an interpolation
        ({"config": lambda text: json.dumps(SECRET(text).replace("${", r"\u0024{"))}, "run 1: "),
        ({"config": edited("optim", "lr", value=0.5)}, "run 1: the config has the identity .*, "),
        ({"config": lambda text: text[:-9]}, "run 1: Unterminated string"),
        ({"summary": lambda text: "[]"}, "run 1: summary.json is not of a run: "),
        ({"summary": lambda text: "{}"}, "run 1: summary.json is not of a run: result_id: "),
        ({"summary": scored(float("nan"))}, "run 1: .*map_at_r: Input should be a finite number"),
        ({"summary": scored(2.5)}, r"run 1: .* map_at_r is 2\.5"),
        ({"folder": lambda text: f"../{text}"}, "is not <experiment>/<names>/<run>"),
    ],
)
def test_altered_files_are_refused(sent, tmp_path, monkeypatch, capsys, columns, reason):
    monkeypatch.setenv("A_KEY", "a-secret")
    change(sent, **columns)
    words = ["mft_table1", "--results", str(sent), "--no-figures", "--runs", str(tmp_path)]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(rf"error: .*{reason}.*\n", error)
    assert "a-secret" not in error
    assert not (tmp_path / "reports").exists()
