"""Heat maps and curves of a sweep over two options."""

from __future__ import annotations

import pytest

from dml.reporting.sweep_figures import heat_maps, hyperparameter_curves, swept_axes
from tests.reporting.made_runs import build, make_cell, node, write_run


@pytest.fixture
def sweep(composed, tmp_path):
    """A report of β × δ on digits with one value each, the best at β 80, δ 0.8."""
    of = node("mft_figure3", metrics=["map_at_r"])
    cells = []
    for beta in (70, 80, 90):
        for delta in (0.7, 0.8):
            words = (f"loss.beta={beta}", f"loss.delta={delta}")
            cfg = composed(*of, *words)
            cells.append(make_cell(cfg, overrides=words))
            write_run(tmp_path, cfg, [[0.4 - abs(beta - 80) / 1000 - abs(delta - 0.8)]])
    return build(cells, tmp_path)


def test_axes_are_varied_options(sweep):
    assert swept_axes(sweep.rows, sweep.swept) == ["loss.beta", "loss.delta"]
    assert swept_axes(sweep.rows[:1], sweep.swept) == []
    assert swept_axes(sweep.rows, ("loss.beta", "loss.beta")) == ["loss.beta"]


def test_heat_map_and_curves_of_a_sweep(sweep):
    (heat,) = heat_maps(sweep.rows, sweep.swept, "map_at_r")
    assert "6 cells" in heat.alt
    assert "highest 40 at loss.beta 80, loss.delta 0.8" in heat.alt
    over_beta, over_delta = hyperparameter_curves(sweep.rows, sweep.swept, "map_at_r")
    assert "2 lines" in over_beta.alt
    assert "3 lines" in over_delta.alt
    assert "highest value 40 at 80 (mf_cwms, delta 0.8)" in over_beta.alt
