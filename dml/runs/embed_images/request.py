"""What a call of `dml.embed` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.runs.compressed_rows import check_form

MOST_IMAGES, MOST_VIEWS = 1_000_000, 10_000  # of a batch, of an image: far above any use


@dataclass(frozen=True)
class Request:
    """What is embedded and by which model: see the arguments of `dml.embed`."""

    network: str
    images: str | Path | Sequence[Any] | np.ndarray
    repeat: int | None = None
    fold: int | None = None
    features: bool = False
    views: int = 0
    dtype: str = "float32"
    batch_size: int | None = None
    options: Sequence[str] = ()
    trust: bool = False
    skip_corrupt: bool = False
    compress: str | None = None

    def check(self) -> None:
        """Raises UserError if a number is out of its range, or a form has no effect or is none."""
        if self.batch_size is not None and not 1 <= self.batch_size <= MOST_IMAGES:
            raise UserError(f"batch_size: {self.batch_size} is not between 1 and {MOST_IMAGES:,}")
        if not 0 <= self.views <= MOST_VIEWS:
            raise UserError(f"views: {self.views} is not between 0 and {MOST_VIEWS:,}")
        if self.compress is not None:
            check_form(self.compress, self.views, self.dtype)
