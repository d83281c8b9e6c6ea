"""Checks of the options of methods, and of the losses for mixing methods.

Mixing requires a loss that is additive over positives and negatives, that is, has a generic form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import nn

from dml.core.errors import UserError, nearest
from dml.losses.generic import find_generic_form
from dml.losses.generic.forms import Form

SAMPLE_LOSSES = (
    "contrastive | ms | ms_miner | contrastive_cosine | lifted_structure | binomial_deviance | nca"
)
PROXY_LOSSES = "proxy_anchor | proxy_nca | proxy_nca_original | proxy_nca_pp"
ALL_LOSSES = f"{SAMPLE_LOSSES} | {PROXY_LOSSES}"


def require_form(loss: nn.Module, method: str, proxies: bool | None = None) -> Form:
    """Returns the generic form of a loss.

    Args:
        loss: the clean loss.
        method: name of the method, for the message.
        proxies: True: the loss must have proxies; False: must not; None: either.

    Raises:
        UserError: the loss has no such form; the message lists the losses that have one.
    """
    supported = {None: ALL_LOSSES, True: PROXY_LOSSES, False: SAMPLE_LOSSES}[proxies]
    try:
        form = find_generic_form(loss)
        has_proxies = "proxies" in (form.anchors, form.others)
        if proxies is not None and proxies != has_proxies:
            raise ValueError(f"{type(loss).__name__} has {'' if has_proxies else 'no '}proxies")
    except ValueError as error:
        raise UserError(
            f"loss: method={method} cannot use it: {error}; choose loss={supported}"
        ) from error
    return form


def check_choices(option: str, value: Sequence[str] | str, valid: Collection[str]) -> list[str]:
    """Returns the chosen names in the order of `valid`, each once.

    Raises:
        UserError: no name or an unknown name is chosen.
    """
    listed = ", ".join(valid)
    if not isinstance(value, Iterable):
        written = "null" if value is None else value
        raise UserError(f"{option}={written} must be a list of [{listed}]")
    chosen = [value] if isinstance(value, str) else list(value)
    for name in chosen:
        if name not in valid:
            raise UserError(
                f"{option}: unknown '{name}'{nearest(str(name), valid)}; choose from [{listed}]"
            )
    if not chosen:
        raise UserError(f"{option} is empty; choose from [{listed}]")
    return [name for name in valid if name in chosen]


def check_number(option: str, value: float, low: float, *, above: bool = False) -> float:
    """Returns `value` after a check: finite, and at least `low` (or `above` it).

    Raises:
        UserError: the value is not a number of this range.
    """
    fits = isinstance(value, int | float) and (value > low if above else value >= low)
    if not fits or value == float("inf"):
        raise UserError(f"{option}={value} must be {'above' if above else 'at least'} {low:g}")
    return value


def check_count(option: str, value: object) -> int:
    """Returns `value` after a check: an integer of at least 1.

    Raises:
        UserError: the value is not a number of this range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{option}={value} must be an integer of at least 1")
    return value


def draw_one(names: Sequence[str]) -> str:
    """Returns a random name, drawn uniformly by torch's generator on the CPU."""
    if len(names) == 1:
        return names[0]
    return names[int(torch.randint(len(names), ()))]
