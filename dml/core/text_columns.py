"""Tables of pandas whose texts are names of files, which need be no UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_text_columns() -> Iterator[None]:
    """Keeps texts as strings of Python in tables that are made inside the context.

    Where pyarrow is installed, pandas stores texts as UTF-8, which refuses the names that Linux
    allows. The setting is that of the caller again afterwards.
    """
    import pandas as pd  # imported late: some commands make no table

    with pd.option_context("mode.string_storage", "python"):
        yield
