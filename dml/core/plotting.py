"""matplotlib with a backend that can be loaded; all other modules import its classes from here."""

from __future__ import annotations

import logging
import os
import sys

from dml.core.errors import first_line

BACKEND = "MPLBACKEND"
log = logging.getLogger(__name__)


def _choose_backend() -> None:
    """Draws with Agg where no backend was chosen, or where the chosen one cannot be loaded.

    A notebook's `!python train.py` inherits a backend that the environment of the command may lack,
    and a desktop's needs a display. Figures are only written to files, which Agg does everywhere.
    """
    imported_before = "matplotlib" in sys.modules
    chosen = os.environ.pop(BACKEND, "")  # matplotlib cannot be imported with a wrong one
    import matplotlib
    from matplotlib import pyplot

    if not chosen:
        matplotlib.use("Agg")  # no display on a cluster
        return
    try:
        if not pyplot.get_fignums():  # figures of the user show that the backend works
            pyplot.switch_backend(matplotlib.get_backend() if imported_before else chosen)
        os.environ[BACKEND] = chosen  # for processes that this one starts
    except Exception as error:  # a backend is a module, which may fail in any way
        matplotlib.use("Agg")
        os.environ[BACKEND] = "Agg"
        log.warning(
            "note: %s=%s cannot be loaded (%s); figures are drawn with Agg",
            *(BACKEND, chosen, first_line(error)),
        )


_choose_backend()

import matplotlib  # noqa: E402
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

__all__ = ["Axes", "Figure", "matplotlib", "plt"]
