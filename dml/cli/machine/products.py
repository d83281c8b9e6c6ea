"""The speed of NumPy's float32 products, by which evaluation and search may rank.

A variable that is set for older processors may halve it. It counts when a process starts, so that
products are timed in processes of their own, as it is set and without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

from dml.cli.machine.outcome import Outcome
from dml.core.errors import UserError

VARIABLE = "OPENBLAS_CORETYPE"
SIDE = 1024  # rows and columns of the matrices
ROUNDS = 5
TOLERANCE = 2e-5  # of float32, relative to the largest value
GAIN = 1.2  # a smaller one may be chance
SECONDS = 60.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def try_products() -> Outcome:
    """Times a product in one thread; a variable that slows it down is a note."""
    speed = _speed_in_a_process(dict(os.environ))
    result = f"NumPy {speed:.0f} GFLOP/s on one core"
    kernel = os.environ.get(VARIABLE)
    if kernel is None:
        return Outcome(result)
    result += f" with {VARIABLE}={kernel}"
    without = {name: value for name, value in os.environ.items() if name != VARIABLE}
    try:
        other = _speed_in_a_process(without)
    except UserError as error:
        return Outcome(f"{result}; without it: {error}")
    if other < GAIN * speed:
        return Outcome(result)
    result += f", {other:.0f} without it"
    return Outcome(result, f"unset {VARIABLE}", works=False, is_needed=False)


def measure_speed() -> float:
    """Returns the GFLOP/s of the fastest of some products.

    Raises:
        UserError: the product is wrong.
    """
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, SIDE, SIDE)).astype(np.float32)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        computed = first @ second
        times.append(time.perf_counter() - start)
    expected = first.astype(np.float64) @ second.astype(np.float64)
    error = np.abs(computed - expected).max() / np.abs(expected).max()
    if not error <= TOLERANCE:
        raise UserError(f"the error of a float32 product is {error:.0e}")
    return 2 * SIDE**3 / min(times) / 1e9


def _speed_in_a_process(environment: dict[str, str]) -> float:
    """Returns the speed in a process with an environment.

    Raises:
        UserError: the process failed.
    """
    code = f"from {__name__} import measure_speed; print(measure_speed())"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **ONE_THREAD, **path},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if answer.returncode:
        lines = answer.stderr.strip().splitlines()
        raise UserError(lines[-1] if lines else f"exit status {answer.returncode}")
    return float(answer.stdout)
