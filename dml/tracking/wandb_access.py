"""The wandb library and its key, or one line that says how to get them."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from dml.core.errors import UserError

SWITCH_OFF = "tracking=none does without"


def load() -> Any:
    """The module, which is an extra.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(f"tracking: {error}; pip install -e '.[wandb]', or {SWITCH_OFF}") from error


@cache
def log_in(wandb: Any) -> None:
    """Looks for a key without asking anyone: a job on a cluster has nobody to answer.

    Raises:
        UserError: there is none, or none that can be one.
    """
    try:
        found = wandb.login(prompt=False, verify=False)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"tracking: W&B refuses the key: {reason}; wandb login --relogin mends it, {SWITCH_OFF}"
        ) from error
    if not found:
        raise UserError(
            "tracking.mode: online needs a key of W&B and there is none; run `wandb login`, set "
            f"WANDB_API_KEY, or take tracking.mode=offline; {SWITCH_OFF}"
        )
