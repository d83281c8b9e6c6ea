"""Configs as the catalog composes them, cells of MLRC, and a report of runs written by hand."""

from __future__ import annotations

import pytest

from dml.config.compositions import compose_config
from tests.results.made_runs import MLRC, build, make_cell, node, write_history, write_run

VALUES = [0.2205, 0.2215, 0.2210]


@pytest.fixture
def composed():
    """Composes `train.yaml` with overrides as the catalog does: files of groups only once."""
    return lambda *overrides: compose_config(overrides)


@pytest.fixture
def mlrc(composed):
    """Composes a run of MLRC on CUB; returns its config."""

    def compose(*overrides: str):
        return composed(*node("mft_table1"), *MLRC, *overrides)

    return compose


@pytest.fixture
def cells(mlrc):
    """Cells of the given losses, ten repeats each."""

    def of(*losses: str):
        return [make_cell(mlrc(f"loss={one}", "protocol.repeats=10"), one) for one in losses]

    return of


@pytest.fixture
def report(mlrc, cells, tmp_path):
    """MFCWMS whole, ArcFace on a smaller budget, contrastive missing, one summary cut short."""
    some = cells("mfcwms", "arcface", "contrastive")
    folder = write_run(tmp_path, some[0].options, [[v] * 4 for v in VALUES], VALUES)
    write_history(folder, {(r, f): [0.1, 0.2] for r in range(3) for f in range(4)})
    small = mlrc("loss=arcface", "protocol.epochs=5")
    write_run(tmp_path, small, [[v] * 4 for v in VALUES], VALUES)
    cut = write_run(tmp_path, mlrc("loss=triplet"), [[0.1]])
    (cut / "summary.json").write_text('{"result')
    return build(some, tmp_path)
