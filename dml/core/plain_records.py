"""Warnings and log records that Python prints where no program has chosen their form."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dml.core.plain_text import show_text
from dml.core.secrets import MaskingFormatter, mask_text


@contextmanager
def plain_records() -> Iterator[None]:
    """Shows control characters, and no secrets, in warnings and in records without a handler.

    Both are printed on stderr: by `warnings.showwarning`, and by `logging.lastResort`.
    """
    before = warnings.formatwarning

    def format_warning(*args: Any, **options: Any) -> str:
        return show_text(mask_text(before(*args, **options)))

    warnings.formatwarning = format_warning
    handler = logging.lastResort
    formatter = handler.formatter if handler else None
    if handler:
        handler.setFormatter(MaskingFormatter())
    try:
        yield
    finally:
        warnings.formatwarning = before
        if handler:
            handler.setFormatter(formatter)
