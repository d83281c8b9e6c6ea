"""Curves of a history written by hand."""

from __future__ import annotations

import pytest

from dml.reporting.curves import average_curve, learning_curves, runtime_curves
from dml.reporting.finished_runs import collect_runs
from dml.reporting.run_groups import group_runs
from tests.reporting.made_runs import write_history, write_run


@pytest.fixture
def group(mlrc, tmp_path):
    folder = write_run(tmp_path, mlrc("protocol.repeats=2"), [[0.1, 0.1], [0.1, 0.1]], [0.2, 0.2])
    write_history(
        folder,
        {
            (0, 0): [0.10, 0.20, 0.30],
            (0, 1): [0.30, 0.40, 0.50, 0.60],
            (1, 0): [0.00, 0.10],
            (1, 1): [0.20, 0.50],
        },
    )
    return group_runs(collect_runs(tmp_path, "mft_table1").finished)[0]


@pytest.fixture
def three(mlrc, tmp_path):
    root = tmp_path / "three"
    folder = write_run(root, mlrc("protocol.repeats=3"), [[0.1]] * 3, [0.2] * 3)
    write_history(folder, {(repeat, 0): [0.1 + repeat / 10, 0.5] for repeat in range(3)})
    return group_runs(collect_runs(root, "mft_table1").finished)[0]


def test_a_curve_is_the_mean_of_all_repeats(group, three):
    found = average_curve("x", group, "map_at_r")
    # repeats: means of folds 20, 30, 40 and 10, 30; together 15, 30
    assert found.x == pytest.approx([0, 1])
    assert found.mean == pytest.approx([15, 30])
    # of two repeats the standard deviation, of three the t-interval (two degrees of freedom)
    assert found.half == pytest.approx([50**0.5, 0])
    assert average_curve("x", three, "map_at_r").half[0] == pytest.approx(4.302653 * 10 / 3**0.5)
    (tail,) = found.tails
    assert tail[0] == pytest.approx([1, 2])
    assert tail[1] == pytest.approx([30, 40])


def test_time_is_steps_at_the_speed_of_the_job(group):
    # 40 steps took 8 s, and an epoch has 10: 2 s, 1/30 of a minute
    assert average_curve("x", group, "map_at_r", timed=True).x == pytest.approx([0, 1 / 30])


def test_no_picture_without_a_history(mlrc, tmp_path):
    write_run(tmp_path, mlrc(), [[0.1]])
    group = group_runs(collect_runs(tmp_path, "mft_table1").finished)[0]
    assert average_curve("x", group, "map_at_r") is None
    assert list(learning_curves([("x", group)], None)) == []
    assert list(runtime_curves([("x", group)])) == []


def test_protocols_have_pictures_of_their_own(composed, tmp_path):
    for protocol in ("traditional", "holdout"):
        cfg = composed("data=digits", f"protocol={protocol}")
        write_history(write_run(tmp_path, cfg, [[0.1]]), {(0, 0): [0.1, 0.2]})
    groups = group_runs(collect_runs(tmp_path, "single").finished)
    pictures = list(learning_curves([("mfcwms", group) for group in groups], None))
    places = sorted(picture.title.partition(" on ")[2] for picture in pictures)
    assert places == ["digits, holdout", "digits, traditional"]
