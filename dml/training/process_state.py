"""Settings of the process that training and evaluation change: restored for the caller's program.

Which are: the number of PyTorch's threads, TF32, random states, and what libraries that we call set
once for the whole process (Optuna's messages, Hydra's current config).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

from dml.core.errors import refuse_exits
from dml.training.train_state import random_state, set_random_state


@contextmanager
def restored_process_state() -> Iterator[None]:
    """Restores, at the end and after any error, what the work inside has changed.

    A decorator as well: each call of the function has a context of its own. An exit of a user's
    code would end the caller's program: it becomes a UserError (`refuse_exits`).
    """
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_grad_enabled, torch.is_grad_enabled())
        stack.callback(_restore_random, random_state(torch.device("cpu")), _random_of_gpus())
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        stack.callback(_restore_precision, _precision())
        for restore in (_optuna_messages(), _hydra_config()):
            stack.callback(restore)
        stack.enter_context(refuse_exits())
        yield


def _random_of_gpus() -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _restore_random(state: dict[str, Any], gpus: list[torch.Tensor]) -> None:
    set_random_state(state, torch.device("cpu"))
    if gpus:
        torch.cuda.set_rng_state_all(gpus)


def _precision() -> list[tuple[Any, str, Any]]:
    """Returns object, attribute and value of the settings of TF32, in the order to restore them.

    PyTorch has old and new names for them, and refuses to read the old ones after the new ones were
    set.
    """
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    settings: list[tuple[Any, str, Any]] = []
    with suppress(RuntimeError):
        settings.append((torch, "float32_matmul_precision", torch.get_float32_matmul_precision()))
    attributes: list[tuple[Any, str]] = [(cudnn, "allow_tf32")]
    for owner in (matmul, getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
        attributes.append((owner, "fp32_precision"))
    for owner, name in attributes:
        with suppress(RuntimeError, AttributeError):  # AttributeError: of an older PyTorch
            settings.append((owner, name, getattr(owner, name)))
    return settings


def _restore_precision(settings: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in settings:
        if owner is torch:
            torch.set_float32_matmul_precision(value)
        else:
            setattr(owner, name, value)


def _optuna_messages() -> Callable[[], None]:
    """Returns a function that restores the level of Optuna's messages, if it is loaded by then."""
    before = sys.modules["optuna"].logging.get_verbosity() if "optuna" in sys.modules else None

    def restore() -> None:
        if "optuna" in sys.modules:
            logging = sys.modules["optuna"].logging
            logging.set_verbosity(logging.INFO if before is None else before)

    return restore


def _hydra_config() -> Callable[[], None]:
    """Returns a function that restores Hydra's current config, of a program that uses Hydra."""
    from hydra.core.global_hydra import GlobalHydra

    before = GlobalHydra.instance().hydra

    def restore() -> None:
        GlobalHydra.instance().hydra = before

    return restore
