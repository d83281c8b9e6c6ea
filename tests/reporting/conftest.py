"""Configs as the catalogue composes them, and cells of MLRC."""

from __future__ import annotations

import pytest

from dml.reporting import catalog as experiments
from tests.reporting.made_runs import MLRC, MadeCell, node


@pytest.fixture
def composed():
    """Composes `train.yaml` with overrides as the catalogue does: files of groups only once."""
    return lambda *overrides: experiments.composed(overrides)


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
        return [
            MadeCell(mlrc(f"loss={loss}", "protocol.repeats=10"), (f"loss={loss}",))
            for loss in losses
        ]

    return of
