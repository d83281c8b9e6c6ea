"""Ranges of the options of methods, which a run checks, and the losses for mixing methods.

Mixing requires a loss that is additive over positives and negatives, that is, has a generic form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import nn

from dml.core.errors import UserError
from dml.losses.generic import find_generic_form
from dml.losses.generic.forms import Form

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
            what = "proxies" if has_proxies else "no proxies"
            raise ValueError(f"{type(loss).__name__} has {what}")
    except ValueError as error:
        raise UserError(
            f"loss: method={method} cannot use it: {error}; choose loss={supported}, or give your "
            f"loss a form, as in docs/losses_in_your_code.md"
        ) from error
    return form


def draw_one(names: Sequence[str]) -> str:
    """Returns a random name, drawn uniformly by torch's generator on the CPU."""
    if len(names) == 1:
        return names[0]
    return names[int(torch.randint(len(names), ()))]
