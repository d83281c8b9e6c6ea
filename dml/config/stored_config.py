"""Check of configs that somebody else may have written.

A stored config is resolved. It may hold `${oc.env:…}` all the same, which OmegaConf would replace
by values of this machine: it is refused.
"""

from __future__ import annotations

from typing import Any

from dml.config.flatten import flatten


def refuse_interpolation(content: Any) -> None:
    """Raises ValueError, with the name of the option, if a text in nested mappings holds `${`."""
    for name, value in flatten(content).items():
        if "${" in f"{name} {value}":
            raise ValueError(f"{name} holds ${{, which a stored config never does")
