"""Reports of runs written by hand: rows, sections, labels, baselines, and their tables."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

from dml.results.catalog import list_cells, load_experiment
from dml.results.report import build_report, main_metric
from dml.results.report_page import render_page
from dml.results.report_texts import list_parts, to_frame, to_markdown
from dml.results.section_tables import section_table
from dml.results.tables import Table, terminal_table
from tests.results.made_runs import TEN, build, find_row, spread_over_folds, write_run

GOLDEN = Path(__file__).parent / "golden_report.md"


def render(report, width: int) -> str:
    tables = [part for part in list_parts(report) if isinstance(part, Table)]
    return "\n".join(terminal_table(table, width).plain for table in tables)


def test_the_golden_report(report, tmp_path):
    text = to_markdown([report]).replace(str(tmp_path), "<outputs>")
    assert re.sub(r"seed0-\w{8}", "seed0-<id>", text) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_terminal_tables_fit(report, width):
    lines = render(report, width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(line.count("22.10 ± 0.12") for line in lines) >= 4  # both rows and evaluations


def test_csv_has_every_number(report):
    table = to_frame([report])
    assert len(table) == 3 * 2 * 2  # rows × evaluations × metrics
    first, last = table.iloc[0], table.groupby("method").last()
    assert (first["mean"], first["std"]) == pytest.approx((22.10, 0.05))
    names = ["method", "repeats", "printed_text", "printed_table", "verdict"]
    assert list(first[names]) == ["mf_cwms", 3, "22.11", "T3", "overlap"]
    assert pd.isna(last.difference["arcface"])
    assert "protocol.epochs=5 instead of" in last.details["arcface"]
    assert last.command["contrastive"] == "python train.py loss=contrastive <&>"


def test_numbers_and_verdicts(cells, tmp_path):
    some = cells("mfcwms", "arcface")
    write_run(tmp_path, some[0].options, spread_over_folds(TEN), [v + 0.05 for v in TEN])
    report = build(some, tmp_path)
    assert (len(report.cells), report.status) == (2, "1 of 2 cells run")
    assert report.missing == [some[1]]
    row = find_row(report, "mf_cwms")
    assert row.score("map_at_r").ours.values == pytest.approx([100 * v for v in TEN])
    assert str(row.score("map_at_r").published) == "22.11 ± 0.08"  # Table 3, not 22.1 of Table 1
    assert row.score("map_at_r").comparison.verdict == "overlap"
    assert row.score("map_at_r").comparison.difference == pytest.approx(22.10 - 22.11)
    concatenated = find_row(report, "mf_cwms", "concatenated")
    assert concatenated.score("map_at_r").comparison.difference == pytest.approx(27.10 - 27.03)
    assert list(row.caveats) == []
    missing = find_row(report, "arcface")
    assert missing.runs.table.empty
    assert str(missing.score("map_at_r").published) == "21.46 ± 0.13"


def own_report(composed, root, *runs: tuple[str, float]):
    for overrides, value in runs:
        write_run(root, composed(*overrides.split()), [[value]])
    return build_report(load_experiment("single"), (), root)


def test_runs_of_no_experiment(composed, tmp_path):
    runs = [(f"seed={seed} optim.lr=3e-3", 0.4 + seed / 100) for seed in (0, 1, 2)]
    runs += [(f"seed={seed} optim.lr=1e-5", 0.3 + seed / 100) for seed in (0, 1, 2)]
    report = own_report(composed, tmp_path, *runs)
    assert report.status == "2 configurations, 6 runs"
    (section,) = report.sections
    assert section.settings == ["optim.lr"]
    assert [row.name for row in section.rows] == ["mfcwms (lr 1e-05)", "mfcwms (lr 0.003)"]
    assert {row.score("map_at_r").ours.n for row in section.rows} == {3}
    assert section.title.endswith("stand-in data")
    assert len(section.tests) == 2  # in both directions


def test_intervals_begin_at_three_runs(composed, tmp_path):
    runs = [(f"seed={seed}", 0.08 + seed / 100) for seed in range(3)]
    runs += [(f"seed={seed} loss=ms", 0.08 + seed / 100) for seed in range(2)]
    report = own_report(composed, tmp_path, *runs, ("loss=mfcont", 0.25))
    (section,) = report.sections
    table = section_table(section, report)
    (scores,) = [column.cells for column in table.columns if column.title == "MAP@R"]
    # half-width 4.302653 × 1 / sqrt(3); both values of two
    assert dict(zip(table.columns[0].cells, scores, strict=True)) == {
        "mfcwms": "9.00 ± 2.48", "ms": "8.00, 9.00", "mfcont": "25.00"
    }  # fmt: skip
    assert [cell for cell in scores if cell.kind == "best"] == ["25.00"]  # as a number, not a text
    assert "best epoch selected on the test images" in table.caption
    for text in (render(report, 200), render_page([report], {}, datetime(2026, 1, 2))):
        assert "8.00, 9.00" in text
    found = to_frame([report]).query("repeats == 2")
    assert list(found["mean"]) == pytest.approx([8.5, 8.5, 3])
    assert found.ci95.isna().all()  # of the scores and the best epoch


def test_the_first_score_is_tested_and_drawn_whatever_is_measured_before_it():
    about = load_experiment("mft_table12")
    for metrics in (["map_at_r", "best_epoch"], ["best_epoch", "train_steps", "map_at_r"]):
        assert main_metric(about.model_copy(update={"metrics": metrics})) == "map_at_r"
    assert main_metric(about.model_copy(update={"metrics": ["best_epoch"]})) == "best_epoch"


def test_unfinished_runs_are_one_line_at_the_end(composed, tmp_path):
    for seed in range(3):
        folder = write_run(tmp_path, composed(f"seed={seed}"), [[0.2]])
        if seed:
            (folder / "summary.json").unlink()
    report = build_report(load_experiment("single"), (), tmp_path)
    assert [*list_parts(report)][-1].startswith("not finished: 2 runs")


def test_networks_before_training_are_baselines_of_every_table(composed, tmp_path):
    for seed in (0, 1):
        for lr in ("1e-3", "1e-5"):
            folder = write_run(tmp_path, composed(f"seed={seed}", f"optim.lr={lr}"), [[0.4]])
            summary = json.loads((folder / "summary.json").read_text())
            summary["jobs"][0]["untrained"] = {"map_at_r": 0.1 + seed / 10}
            (folder / "summary.json").write_text(json.dumps(summary))
    size = f"embedder.size={composed().embedder.size}"
    shelf = composed("method=untrained", "protocol.epochs=0", size)
    write_run(tmp_path, shelf, [[0.2]])
    (section,) = build_report(load_experiment("single"), (), tmp_path).sections
    untrained, off_the_shelf = section.baselines
    assert untrained.name == "untrained"
    # the same network for both learning rates: one value per seed
    assert untrained.score("map_at_r").ours.values == pytest.approx((10, 20))
    assert off_the_shelf.method == "off the shelf"
    assert off_the_shelf.score("map_at_r").ours.mean == pytest.approx(20)


@pytest.mark.parametrize(
    ("option", "values"),
    [("transform.size", (32, 48)), ("data.images_per_class_at_most", (4, 8))],
)
def test_scores_before_training_on_other_test_images_are_other_rows(
    composed, tmp_path, option, values
):
    for number, value in enumerate(values):
        folder = write_run(tmp_path, composed(f"{option}={value}"), [[0.4]])
        summary = json.loads((folder / "summary.json").read_text())
        summary["jobs"][0]["untrained"] = {"map_at_r": 0.1 + number / 10}
        (folder / "summary.json").write_text(json.dumps(summary))
    (section,) = build_report(load_experiment("single"), (), tmp_path).sections
    means = [row.score("map_at_r").ours.mean for row in section.baselines]
    assert sorted(means) == pytest.approx([10, 20])
    assert len({row.label for row in section.baselines}) == 2


def test_a_network_off_the_shelf_stands_below_with_its_published_result(tmp_path):
    """Table 1 of pfml prints Recall@1 of 83.1 for ViT-S on CUB without training, as quoted."""
    name = "pfml_table1"
    cells = []
    for cell in list_cells(name, outputs=str(tmp_path)):
        if (cell.options.data.name, cell.options.backbone.name) == ("cub", "vit_s16"):
            cells.append(cell)
            write_run(tmp_path, cell.options, [[0.835]], None, "recall_at_1", embedding_size=384)
    assert [cell.options.method.name for cell in cells] == ["plain", "untrained"]
    report = build_report(load_experiment(name), cells, tmp_path)
    (section,) = report.sections
    table = section_table(section, report)
    assert table.below == 1
    rows = {str(row[0]): list(map(str, row[1:4])) for row in table.rows}
    assert [column.title for column in table.columns[1:4]] == ["Recall@1", "published", "Δ"]
    assert rows["pfml"] == ["83.5", "87.8 ± 0.2", "-4.3 ·"]
    assert rows["off the shelf"] == ["83.5", "83.1", "+0.4 ·"]
    assert (table.columns[-1].title, table.columns[-1].cells) == ("marks", ["R", "N"])
    lines = to_frame([report]).query("metric == 'recall_at_1'").set_index("method")
    assert dict(lines.printed_text) == {"pfml": "87.8", "vit_s": "83.1"}
