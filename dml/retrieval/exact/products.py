"""The fastest float32 product of a processor, for rankings that are exact with any product.

torch and NumPy bring libraries of their own, and either may be twice as fast as the other. Which
one is measured, once for each width of the vectors, and kept in a file by processor and versions.
No step of a training run depends on it: the sums of two libraries differ in their last bits.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dml.core.atomic_io import replace_file
from dml.core.cache_folder import cache_folder
from dml.core.processor import processor_name
from dml.core.regular_files import read_regular_text

Array = NDArray[Any]
Product = Callable[[Array, Array, Array], object]

FLOPS = 2.0e7  # of a product that is timed: a millisecond of a slow core
ROUNDS = 3
FLOAT32_UNIT = 2.0**-24
GAIN = 1.05  # by which NumPy must be faster than torch: less may be chance
KERNELS = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "ATEN_CPU_CAPABILITY")


def multiply_by_torch(a_nE: Array, b_cE: Array, out_nc: Array) -> None:
    """Writes a·bᵀ by PyTorch."""
    tensors = (torch.from_numpy(part) for part in (a_nE, b_cE.T))
    torch.mm(*tensors, out=torch.from_numpy(out_nc))


def multiply_by_numpy(a_nE: Array, b_cE: Array, out_nc: Array) -> None:
    """Writes a·bᵀ by NumPy."""
    np.matmul(a_nE, b_cE.T, out=out_nc)


PRODUCTS: dict[str, Product] = {"torch": multiply_by_torch, "numpy": multiply_by_numpy}
_chosen: dict[tuple[str, int], str] = {}


def choose_product(width: int) -> Product:
    """Returns the fastest product a·bᵀ of rows of `width` numbers in a single thread.

    The caller limits the threads of both libraries to one. A product whose errors are above those
    of float32 is never returned.
    """
    machine = _describe_machine()
    key = machine, width
    if key not in _chosen:
        stored = _read(cache_path()).get(machine, {})
        name = stored.get(str(width)) if isinstance(stored, dict) else None
        if name not in tuple(PRODUCTS):  # of any type
            name = measure_products(width)
            _write(cache_path(), machine, width, name)
        _chosen[key] = name
    return PRODUCTS[_chosen[key]]


def measure_products(width: int) -> str:
    """Returns the name of the fastest product by the processor time of the calling thread."""
    side = max(16, int((FLOPS / (2 * width)) ** 0.5))
    random = np.random.default_rng(0)
    a_nE, b_nE = random.standard_normal((2, side, width)).astype(np.float32)
    out_nn = np.empty((side, side), np.float32)
    times = {}
    for name, product in PRODUCTS.items():
        product(a_nE, b_nE, out_nn)
        if is_accurate(a_nE, b_nE, out_nn):
            times[name] = np.inf
    for _ in range(ROUNDS):
        for name in times:
            start = time.thread_time()
            PRODUCTS[name](a_nE, b_nE, out_nn)
            times[name] = min(times[name], time.thread_time() - start)
    is_faster = times.get("numpy", np.inf) * GAIN < times.get("torch", np.inf)
    return "numpy" if is_faster else "torch"


def is_accurate(a_nE: Array, b_cE: Array, out_nc: Array) -> bool:
    """Returns whether a product a·bᵀ has the accuracy of float32, in its first and last rows.

    Each sum of E products may be wrong by E units of Σ|a·b| (Higham, Accuracy and Stability of
    Numerical Algorithms, §3.1).
    """
    rows = [0, len(a_nE) // 2, len(a_nE) - 1]
    exact = a_nE[rows].astype(np.float64) @ b_cE.T.astype(np.float64)
    bound = np.abs(a_nE[rows]).astype(np.float64) @ np.abs(b_cE.T).astype(np.float64)
    error = np.abs(out_nc[rows] - exact)
    return bool((error <= a_nE.shape[1] * FLOAT32_UNIT * bound).all())


def cache_path() -> Path:
    """Returns the file that keeps what was measured."""
    return cache_folder() / "products.json"


def _describe_machine() -> str:
    """Returns processor, versions and settings on which the speed of products depends."""
    capability = torch.backends.cpu.get_cpu_capability()
    kernels = [os.environ.get(name, "") for name in KERNELS]
    parts = [processor_name(), capability, torch.__version__, np.__version__, *kernels]
    return " | ".join(parts)


def _read(path: Path) -> dict[str, Any]:
    """Returns what a file holds; nothing of one that is absent, damaged or of other software."""
    try:
        content = json.loads(read_regular_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, machine: str, width: int, name: str) -> None:
    content = _read(path)
    known = content.get(machine)
    widths = known if isinstance(known, dict) else {}
    content[machine] = {**widths, str(width): name}
    with suppress(OSError):  # it is measured again by the next process
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1))
