"""Numbers behind the curves, heat maps and embedding maps of a report."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from dml.reporting import embedding_maps as embedding_maps_room
from dml.reporting.curves import curve, learning_curves, runtime
from dml.reporting.embedding_maps import (
    chosen,
    embedding_maps,
    remembered_map,
    without_embeddings,
)
from dml.reporting.finished_runs import collect
from dml.reporting.report import build
from dml.reporting.run_groups import grouped
from dml.reporting.sweep_figures import axes_of, heat_maps, hyperparameter_curves
from tests.reporting.made_runs import MadeCell, node, write_history, write_run


def svg(uri: str) -> str:
    kind, _, content = uri.partition(",")
    assert kind == "data:image/svg+xml;base64"
    return base64.b64decode(content).decode()


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
    return grouped(collect(tmp_path, "mft_table1").runs)[0]


def test_a_curve_is_the_mean_of_repeats_while_all_are_there(group):
    found = curve("x", group, "map_at_r")
    # repeats: means of folds 20, 30, 40 and 10, 30; together 15, 30
    assert found.x == pytest.approx([0, 1])
    assert found.mean == pytest.approx([15, 30])
    assert found.half == pytest.approx([12.706205 * 5, 0], rel=1e-6)  # t, one degree of freedom
    (tail,) = found.tails
    assert tail[0] == pytest.approx([1, 2])
    assert tail[1] == pytest.approx([30, 40])


def test_time_is_steps_at_the_pace_of_the_job(group):
    # 40 steps took 8 s, and an epoch has 10: 2 s, 1/30 of a minute
    assert curve("x", group, "map_at_r", timed=True).x == pytest.approx([0, 1 / 30])


def test_no_history_no_picture(mlrc, tmp_path):
    write_run(tmp_path, mlrc(), [[0.1]])
    group = grouped(collect(tmp_path, "mft_table1").runs)[0]
    assert curve("x", group, "map_at_r") is None
    assert list(learning_curves([("x", group)], None)) == []
    assert list(runtime([("x", group)])) == []


def test_pictures_say_what_they_show(group):
    (picture,) = learning_curves([("mf_cwms", group)], None)
    assert "mf_cwms: at most 30 at epoch 1" in picture.alt
    assert "</svg>" in svg(picture.light)
    assert svg(picture.light) != svg(picture.dark)
    (timed,) = runtime([("mf_cwms", group)])
    assert "on hand" in timed.title


@pytest.fixture
def sweep(composed, tmp_path):
    """A report of β × δ on digits with one value each, the best at β 80, δ 0.8."""
    of = node("mft_figure3", metrics=["map_at_r"])
    cells = []
    for beta in (70, 80, 90):
        for delta in (0.7, 0.8):
            words = (f"loss.beta={beta}", f"loss.delta={delta}")
            cfg = composed(*of, *words)
            cells.append(MadeCell(cfg, words))
            write_run(tmp_path, cfg, [[0.4 - abs(beta - 80) / 1000 - abs(delta - 0.8)]])
    return build("mft_figure3", cells, tmp_path, {"metrics": ["map_at_r"]})


def test_axes_are_what_varies(sweep):
    assert axes_of(sweep.rows, sweep.swept) == ["loss.beta", "loss.delta"]
    assert axes_of(sweep.rows[:1], sweep.swept) == []
    assert axes_of(sweep.rows, ("loss.beta", "loss.beta")) == ["loss.beta"]


def test_heat_map_and_curves_of_a_sweep(sweep):
    (heat,) = heat_maps(sweep.rows, sweep.swept, "map_at_r")
    assert "6 cells" in heat.alt
    assert "highest 40 at loss.beta 80, loss.delta 0.8" in heat.alt
    over_beta, over_delta = hyperparameter_curves(sweep.rows, sweep.swept, "map_at_r")
    assert "2 lines" in over_beta.alt
    assert "3 lines" in over_delta.alt
    assert "highest value 40 at 80 (mf_cwms, delta 0.8)" in over_beta.alt


def test_a_map_is_laid_out_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(embedding_maps_room, "flattened", lambda p: calls.append(p) or p[:, :2])
    points, path = np.eye(6, dtype=np.float32), tmp_path / "figures" / "embedding_map.npz"
    for given in (points, points, 2 * points, 2 * points):
        assert (remembered_map(given, path) == given[:, :2]).all()
    assert len(calls) == 2
    path.write_bytes(b"PK cut short")
    remembered_map(points, path)
    assert len(calls) == 3


def test_embedding_maps_of_what_is_stored(group):
    named = [("mf_cwms", group)]
    assert list(embedding_maps(named)) == []
    folder = group.first.folder
    assert without_embeddings(named) == [f"python evaluate.py run={folder} save=float16"]
    labels = np.repeat(np.arange(20), 4)
    points = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    np.savez(folder / "embeddings.npz", embeddings=points, labels=labels)
    some, of = chosen(folder / "embeddings.npz")
    assert some.shape == (60, 6)
    assert of.max() == 14  # the first 15 classes
    (picture,) = embedding_maps(named)
    assert "60 test images of 15 unseen classes" in picture.alt
    assert picture.light.startswith("data:image/png;base64,")
    assert without_embeddings(named) == []
