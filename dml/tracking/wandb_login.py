"""Import of wandb and login, with one-line errors that say what to install or set."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from dml.core.errors import UserError

SWITCH_OFF = "tracking=none switches tracking off"


def import_wandb() -> Any:
    """Returns the module wandb, an optional dependency.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(f"tracking: {error}; pip install -e '.[wandb]', or {SWITCH_OFF}") from error


@cache
def log_in(wandb: Any) -> None:
    """Logs in with a stored key and without a prompt, which nobody would answer on a cluster.

    Raises:
        UserError: there is no key, or it is not valid.
    """
    try:
        has_key = wandb.login(prompt=False, verify=False)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"tracking: W&B refuses the key: {reason}; run `wandb login --relogin`, {SWITCH_OFF}"
        ) from error
    if not has_key:
        raise UserError(
            "tracking.mode: online needs a key of W&B; run `wandb login`, set WANDB_API_KEY, or "
            f"use tracking.mode=offline; {SWITCH_OFF}"
        )
