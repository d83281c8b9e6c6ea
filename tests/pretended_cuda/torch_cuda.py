"""A machine with the pretended device: what `torch.cuda` answers, and torch's own functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer, optimizer

from tests.pretended_cuda import device
from tests.pretended_cuda.device import CUDA, EveryOperation, OnCuda
from tests.pretended_cuda.waits import note_wait


class Autocast(torch.autocast):
    """That of the CPU, where the tensors are."""

    def __init__(self, device_type: str, *more: Any, **options: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *more, **options)


def _seed(seed: int) -> None:
    device.set_random_state(torch.Generator().manual_seed(seed).get_state())


ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "_lazy_init": lambda: None,
    "device_count": lambda: 1,
    "get_device_name": lambda *number: "a GPU that is not there",
    "mem_get_info": lambda *number: (70 << 30, 80 << 30),
    "max_memory_allocated": lambda *number: 1 << 20,
    "memory_allocated": lambda *number: 1 << 20,
    "synchronize": lambda *number: note_wait("synchronize"),
    "is_current_stream_capturing": lambda: False,
    "get_rng_state": device.random_state,
    "set_rng_state": device.set_random_state,
    "manual_seed_all": _seed,
}


_group = torch._C._group_tensors_by_device_and_dtype


def _group_by_device(lists: Any, with_indices: bool = False) -> dict[Any, Any]:
    """Groups of tensors for `foreach` kernels, by the device they claim."""
    groups = _group(lists, with_indices)
    return {
        (next(one for one in tensors[0] if one is not None).device, dtype): (tensors, places)
        for (_, dtype), (tensors, places) in groups.items()
    }


def _pin(self: Tensor, *more: Any) -> Tensor:
    return self.detach().clone()


def _cuda(self: Tensor, number: Any = None, non_blocking: bool = False, **more: Any) -> Tensor:
    return self.to(CUDA, non_blocking=non_blocking)


def _cpu(self: Tensor, **more: Any) -> Tensor:
    return self.to(torch.device("cpu"))


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Gives this thread the device; afterwards everything is as it was."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name, answer in ANSWERS.items():
            patch.setattr(torch.cuda, name, answer)
        for name, answer in {
            "is_available": lambda: True,
            "current_accelerator": lambda *more, **options: torch.device("cuda"),
            "current_device_index": lambda: 0,
            "set_device_index": lambda number: None,
        }.items():
            patch.setattr(torch.accelerator, name, answer)
        for name, method in {
            "to": device.to,
            "cuda": _cuda,
            "cpu": _cpu,
            "pin_memory": _pin,
        }.items():
            patch.setattr(Tensor, name, method)
        for name in ("tensor", "as_tensor"):
            patch.setattr(torch, name, device.made_on(getattr(torch, name)))
        patch.setattr(torch.nn.functional, "one_hot", device.one_hot)
        patch.setattr(torch._C, "_group_tensors_by_device_and_dtype", _group_by_device)
        patch.setattr(torch, "autocast", Autocast)
        patch.setattr(torch.amp, "autocast", Autocast)
        supported = [*optimizer._foreach_supported_types, OnCuda]
        patch.setattr(optimizer, "_foreach_supported_types", supported)
        for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
            if hasattr(Optimizer, name):
                patch.setattr(Optimizer, name, lambda self: None)
        # `Module.to` would exchange the memory of a parameter, which keeps the device it claims.
        overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        device.set_random_state(None)
        try:
            with EveryOperation():
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
