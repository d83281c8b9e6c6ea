"""All pictures of docs/concepts by the name of their page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from studies.concepts import evaluation_pictures, method_pictures

PICTURES: dict[str, Callable[[Path], None]] = {}
for module in (evaluation_pictures, method_pictures):
    for name, function in vars(module).items():
        if name.startswith("draw_"):
            PICTURES[name.removeprefix("draw_")] = function
