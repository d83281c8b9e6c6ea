"""What methods that mix need from their loss and their options, or a line that says what is wrong.

A loss qualifies if it is additive over positives and negatives, that is, has a generic form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import nn

from dml.core.errors import UserError, nearest
from dml.losses.generic import generic_form
from dml.losses.generic_forms import Form

SAMPLE_LOSSES = "contrastive | ms | ms_miner, or a pair loss of dml.losses.generic"
PROXY_LOSSES = "proxy_anchor | proxy_nca | proxy_nca_pp, or a proxy loss of dml.losses.generic"
ALL_LOSSES = (
    "contrastive | ms | ms_miner | proxy_anchor | proxy_nca | proxy_nca_pp, "
    "or a loss of dml.losses.generic"
)


def form_of(loss: nn.Module, method: str, proxies: bool | None = None) -> Form:
    """Returns the generic form of a loss.

    Args:
        loss: the clean loss.
        method: who asks, for the message.
        proxies: whether the loss must have proxies, must not have them (False), or may (None).

    Raises:
        UserError: it has no such form; says which losses do.
    """
    supported = {None: ALL_LOSSES, True: PROXY_LOSSES, False: SAMPLE_LOSSES}[proxies]
    try:
        form = generic_form(loss)
        has_proxies = "proxies" in (form.anchors, form.others)
        if proxies is not None and proxies != has_proxies:
            raise ValueError(f"{type(loss).__name__} has {'' if has_proxies else 'no '}proxies")
    except ValueError as error:
        raise UserError(
            f"loss: method={method} cannot take it: {error}; use loss={supported}"
        ) from error
    return form


def choices(option: str, value: Sequence[str] | str, valid: Collection[str]) -> list[str]:
    """Returns the chosen names in the order of `valid`, each once.

    Raises:
        UserError: there is none, or one that does not exist.
    """
    listed = ", ".join(valid)
    if not isinstance(value, Iterable):
        written = "null" if value is None else value
        raise UserError(f"{option}={written} must be a list of [{listed}]")
    chosen = [value] if isinstance(value, str) else list(value)
    for name in chosen:
        if name not in valid:
            raise UserError(
                f"{option}: no '{name}'{nearest(str(name), valid)}; choose from [{listed}]"
            )
    if not chosen:
        raise UserError(f"{option} is empty; choose from [{listed}]")
    return [name for name in valid if name in chosen]


def number(option: str, value: float, low: float, *, above: bool = False) -> float:
    """Returns a finite number of at least `low`, or `above` it.

    Raises:
        UserError: it is none.
    """
    fits = isinstance(value, int | float) and (value > low if above else value >= low)
    if not fits or value == float("inf"):
        raise UserError(f"{option}={value} must be {'above' if above else 'at least'} {low:g}")
    return value


def count(option: str, value: object) -> int:
    """Returns a whole number, 1 or more.

    Raises:
        UserError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{option}={value} must be a whole number, at least 1")
    return value


def draw(names: Sequence[str]) -> str:
    """Returns one of the names, uniformly, from torch's generator on the CPU."""
    if len(names) == 1:
        return names[0]
    return names[int(torch.randint(len(names), ()))]
