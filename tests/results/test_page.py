"""The HTML page: valid, accessible, and complete without a network."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from html.parser import HTMLParser
from itertools import product
from statistics import stdev
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from scipy import stats

from dml.results import figures
from dml.results.catalog import load_experiment
from dml.results.figures import average_curve, draw_figures
from dml.results.report import build_report
from dml.results.report_page import render_page
from dml.runs.figures.drawing import plt
from dml.runs.figures.line_styles import line_styles, loss_colors
from dml.runs.folder.stored_run import Result
from tests.results.made_runs import build, make_cell, write_history, write_run

VOID = {"meta", "link", "img", "source", "br", "input"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects what a reader of the page depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_valid_and_accessible(report):
    text = render_page(
        [report, report], {report.about.id: draw_figures(report)}, datetime(2026, 1, 2)
    )
    found = Outline()
    found.feed(text)
    assert found.open == []
    images = [values for tag, values in found.tags if tag == "img"]
    assert len(images) == 2 * 3  # scores of two evaluations, learning curves; equal reports
    assert all(image["alt"].strip() for image in images)
    assert all("scope" in values for tag, values in found.tags if tag == "th")
    keys = ("src", "srcset", "href", "data")
    addresses = [values[key] for _, values in found.tags for key in keys if key in values]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    ids = {values["id"] for _, values in found.tags if "id" in values}
    assert {address[1:] for address in addresses if address.startswith("#")} <= ids
    assert "<&>" not in text
    assert "loss=contrastive &lt;&amp;&gt;" in text
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    cells = [values for tag, values in found.tags if tag == "td"]
    assert any(values.get("class") == "not_compared" for values in cells)
    assert any("protocol.epochs=5" in values.get("title", "") for values in cells)
    assert '<td class="overlap" title="intervals overlap; Welch' in text
    assert text.count("<dt>commit</dt><dd>0123456789ab</dd>") == 2 * 2 * 2  # rows, evaluations


def make_histories(column):
    """Two runs of other lengths, speeds and numbers of repeats; some rows lack the column."""
    random = np.random.default_rng(0)
    runs = []
    for models in ({(0, 0): 7, (0, 1): 5, (1, 0): 6, (1, 1): 9}, {(3, 0): 8, (3, 1): 6}):
        rows, jobs = [], []
        for (repeat, fold), length in models.items():
            seconds = random.uniform(50, 500)
            model = {"repeat": repeat, "fold": fold}
            jobs.append(Result(**model, metrics={}, steps=90 + fold, seconds=seconds))
            for number in range(length):
                row = {**model, "epoch": 2.0 * number, "step": 21 * number}
                rows.append({**row, column: random.uniform()})
                rows.append({**row, "step": 21 * number + 4, column: np.nan})
        runs.append(SimpleNamespace(history=rows, summary=SimpleNamespace(jobs=jobs)))
    return runs


def point_of(run, job, column, timed, number):
    """The place and the value of a model at an evaluation that has the column."""
    rows = []
    for row in run.history:
        is_of_job = (row["repeat"], row["fold"]) == (job.repeat, job.fold)
        if is_of_job and not np.isnan(row[column]):
            rows.append(row)
    minutes = rows[number]["step"] * job.seconds / job.steps / 60
    return minutes if timed else rows[number]["epoch"], rows[number][column]


@pytest.mark.parametrize(("column", "unit"), [("map_at_r", 100), ("loss", 1)])
@pytest.mark.parametrize("timed", [True, False])
def test_a_curve_is_the_mean_over_repeats_of_means_over_folds(column, unit, timed):
    """It ends with the shortest history."""
    runs = make_histories(column)
    found = average_curve(runs, column, timed)
    assert len(found) == 5
    for number in range(5):
        by_repeat = defaultdict(list)
        for position, run in enumerate(runs):
            for job in run.summary.jobs:
                point = point_of(run, job, column, timed, number)
                by_repeat[position, job.repeat].append(point)
        places, values = np.array([np.mean(points, axis=0) for points in by_repeat.values()]).T
        assert found.index[number] == pytest.approx(places.mean())
        half = unit * stats.t.ppf(0.975, 2) * stdev(values) / 3**0.5
        expected = [unit * values.mean(), half, 3]
        assert found.iloc[number].tolist() == pytest.approx(expected)


def test_a_heat_map_has_each_score_at_its_two_values(mlrc, tmp_path, monkeypatch):
    cells, scores, shown = [], {}, {}
    for alpha, delta in product((1, 5), (0.1, 0.3)):
        words = (f"loss.alpha={alpha}", f"loss.delta={delta}")
        cfg = mlrc("loss=pfml", *words)
        cells.append(make_cell(cfg, "pfml", words))
        scores[alpha, delta] = alpha / 100 + delta
        write_run(tmp_path, cfg, [[scores[alpha, delta]] * 4])

    def read(figure):
        axis = figure.axes[0]
        if "loss." not in axis.get_xlabel():
            return
        xs = [float(text.get_text()) for text in axis.get_xticklabels()]
        ys = [float(text.get_text()) for text in axis.get_yticklabels()]
        names = axis.get_xlabel(), axis.get_ylabel()
        for text in axis.texts:
            x, y = text.get_position()
            values = dict(zip(names, (xs[int(x)], ys[int(y)]), strict=True))
            shown[values["loss.alpha"], values["loss.delta"]] = float(text.get_text())

    report = build(cells, tmp_path, figures=["heat_map"])
    with monkeypatch.context() as patched:
        patched.setattr(plt, "close", read)
        draw_figures(report)
    plt.close("all")
    assert shown == pytest.approx({key: 100 * score for key, score in scores.items()}, abs=0.06)


def test_a_varied_list_has_no_axis(mlrc, tmp_path):
    """Lists that cells vary, such as the types of Metrix, are no numbers to draw against."""
    cells = []
    for types, lr in (("[input]", 0.1), ("[input]", 0.2), ("[feature]", 0.1), ("[feature]", 0.2)):
        words = (f"method.types={types}", f"optim.lr={lr}")
        cfg = mlrc("loss=contrastive", "method=metrix", *words)
        cells.append(make_cell(cfg, "contrastive", words))
        write_run(tmp_path, cfg, [[lr] * 4], [lr])
    report = build(cells, tmp_path, figures=["hyperparameter_curves"])
    titles = [title for title, _ in draw_figures(report)]
    assert all("against optim.lr" in title for title in titles)
    assert len(titles) == 2  # separated and concatenated


def test_a_curve_has_no_points_of_other_curves(mlrc, tmp_path, monkeypatch):
    cells, drawn = [], {}
    monkeypatch.setattr(
        figures, "plot_curves", lambda axis, curves, name, *_: drawn.update({name: curves})
    )
    for option in ("alpha=1", "alpha=2", "delta=0.1", "delta=0.3", "delta_repulsion=0.3"):
        cfg = mlrc("loss=pfml", word := f"loss.{option}")
        cells.append(make_cell(cfg, "pfml", (word,)))
        write_run(tmp_path, cfg, [[0.1] * 4])
    draw_figures(build(cells, tmp_path, figures=["hyperparameter_curves"]))
    assert [list(curve.index) for curve in drawn["loss.alpha"].values()] == [[1, 2, 4]]
    assert [list(curve.index) for curve in drawn["loss.delta"].values()] == [[0.1, 0.2, 0.3]]


def test_of_two_rows_at_one_value_the_comparable_one_counts(mlrc, tmp_path, monkeypatch):
    cells, drawn = [], []
    monkeypatch.setattr(figures, "plot_curves", lambda axis, curves, *_: drawn.append(curves))
    for word, score in (("loss.alpha=1", 0.1), ("loss.alpha=2", 0.2)):
        cfg = mlrc("loss=pfml", word)
        cells.append(make_cell(cfg, "pfml", (word,)))
        write_run(tmp_path, cfg, [[score] * 4])
        write_run(tmp_path, mlrc("loss=pfml", word, "protocol.epochs=5"), [[0.9] * 4])
    draw_figures(build(cells, tmp_path, figures=["hyperparameter_curves"]))
    (curve,) = drawn[-1].values()
    assert list(curve["mean"]) == pytest.approx([10, 20])


def test_relative_improvements_are_above_the_lowest(mlrc, tmp_path, monkeypatch):
    cells = []
    for loss, score in (("ms", 0.3), ("contrastive", 0.2), ("triplet", 0.22)):
        cells.append(make_cell(cfg := mlrc(f"loss={loss}"), loss))
        write_run(tmp_path, cfg, [[score] * 4], [0.9])
    bars = []
    barh = Axes.barh
    monkeypatch.setattr(Axes, "barh", lambda *more, **k: bars.extend(more[2]) or barh(*more, **k))
    report = build(cells, tmp_path, figures=["relative_improvement"])
    picture = draw_figures(report)[-1]  # of the separated scores alone
    assert "relative to contrastive" in picture[0]
    assert bars == pytest.approx([0, 10, 50])  # contrastive, triplet, ms


def test_pictures_of_runs_show_the_best_configuration_of_each_method(composed, tmp_path):
    """The best method comes first, also if it has the worst configuration as well."""
    scores = (("triplet", 0.1, 0.3), ("ms", 0.1, 0.5), ("ms", 0.2, 0.1), ("triplet", 0.2, 0.2))
    for loss, lr, score in scores:
        folder = write_run(tmp_path, composed(f"loss={loss}", f"optim.lr={lr}"), [[score]])
        (folder / "figures").mkdir()
        (folder / "figures" / "neighbors.png").write_bytes(b"")
    report = build_report(load_experiment("single"), (), tmp_path)
    titles = [title for title, _ in draw_figures(report) if title.startswith("neighbors")]
    assert len(titles) == 2
    assert titles[0].startswith("neighbors of ms (lr 0.1) on ")
    assert titles[1].startswith("neighbors of triplet (lr 0.1) on ")


def curve(means, halves, repeats):
    columns = {"mean": means, "half": halves, "repeats": repeats}
    return pd.DataFrame(columns, index=[0.0, 1.0])


def drawn_axis(curves, metric="map_at_r"):
    _, axis = plt.subplots()
    losses = dict.fromkeys(curves, "ms")
    styles = line_styles(losses, loss_colors(["ms"]))
    figures.plot_curves(axis, curves, figures.EPOCH, metric, styles)
    plt.close(axis.figure)
    return axis


@pytest.mark.parametrize(("metric", "low", "high"), [("map_at_r", 0, 100), ("loss", -3, 103)])
def test_bands_of_scores_end_at_0_and_100(metric, low, high):
    axis = drawn_axis({"a": curve([2.0, 98.0], [5.0, 5.0], 3)}, metric)
    corners = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == (low, high)
    if metric == "map_at_r":
        assert axis.get_ylim() == (0, 100)


@pytest.mark.parametrize(
    ("repeats", "half", "texts"),
    [
        ((1,), 0.0, []),
        ((2,), 1.0, ["± standard deviation of two repeats"]),
        ((3,), 1.0, ["95 % interval"]),
        ((3,), 0.0, []),
        ((2, 10), 1.0, ["± standard deviation of two repeats,\n95 % interval"]),
    ],
)
def test_the_legend_says_what_bands_are(repeats, half, texts):
    curves = {str(n): curve([1.0, 2.0], [half, half], n) for n in repeats}
    shown = [text.get_text() for text in drawn_axis(curves).get_legend().get_texts()]
    assert shown == [*curves, "highest", *texts]


def test_losses_keep_their_colors_from_picture_to_picture(mlrc, tmp_path, monkeypatch):
    """In a section with a single loss, in curves and in bars."""
    cells, drawn, bars = [], [], []
    for loss, data in (("snr", "cub"), ("margin", "cub"), ("circle", "cub"), ("circle", "cars")):
        cells.append(make_cell(cfg := mlrc(f"loss={loss}", f"data={data}"), loss))
        folder = write_run(tmp_path, cfg, [[0.2] * 4], [0.9])
        write_history(folder, {(0, fold): (0.1, 0.2) for fold in range(4)})
    barh = Axes.barh

    def watch(*more, color, **options):
        bars.append(set(color))
        return barh(*more, color=color, **options)

    monkeypatch.setattr(figures, "plot_curves", lambda *more: drawn.append(more[-1]))
    monkeypatch.setattr(Axes, "barh", watch)
    draw_figures(build(cells, tmp_path, figures=["learning_curves", "relative_improvement"]))
    of_cub, of_cars = drawn
    color_of = {name.split()[0]: style.color for name, style in of_cub.items()}
    assert len(set(color_of.values())) == 3
    assert [style.color for style in of_cars.values()] == [color_of["circle"]]
    assert bars == [set(color_of.values()), {color_of["circle"]}]


def test_an_axis_says_that_the_constant_of_a_loss_is_left_out():
    axis = drawn_axis({"a": curve([1.0, 0.5], [0.0, 0.0], 1)}, "loss_without_constant")
    assert axis.get_ylabel() == "loss without its constant"
