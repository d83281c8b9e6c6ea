"""A backend of matplotlib that cannot be loaded costs nothing but a line."""

import os
import subprocess
import sys

import pytest

from dml.core.installation import PACKAGE

DRAW = """
import logging; logging.basicConfig()
from dml.core.plotting import plt, matplotlib
figure, axis = plt.subplots()
figure.savefig("x.png")
print(matplotlib.get_backend().lower())
"""


@pytest.mark.parametrize(
    ("backend", "used"),
    [
        ("module://nope", "agg"),  # a notebook's, in another environment
        ("nope", "agg"),  # matplotlib itself cannot be imported with it
        ("TkAgg", "agg"),  # there is no display
        ("", "agg"),
        (None, "agg"),
        ("svg", "svg"),
    ],
)
def test_figures_are_drawn_with_any_backend(backend, used, tmp_path):
    kept = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND", "DISPLAY")}
    chosen = {} if backend is None else {"MPLBACKEND": backend}
    environment = {**kept, **chosen, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", DRAW], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == [used], done.stderr
    assert (f"MPLBACKEND={backend}" in done.stderr) == (backend not in ("", None, "svg"))
    assert (tmp_path / "x.png").stat().st_size > 0
