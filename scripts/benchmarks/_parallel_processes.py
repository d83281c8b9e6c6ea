"""Several trainings on one device at the same time, each in its own process."""

from __future__ import annotations

import multiprocessing
import queue
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from ._training_loops import Loop, Setting, Variant

LIMIT_SECONDS = 900.0  # of the longest wait for another process


def measure_processes(count: int, setting: Setting, variant: Variant, steps: int) -> float:
    """Returns the images/s of `count` processes that train at the same time, together.

    Raises:
        RuntimeError: one of them failed, for example because memory ran out.
    """
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    together, answers = context.Barrier(count), context.Queue()
    arguments = (setting, variant, steps, torch.get_num_threads(), together, answers)
    processes = [context.Process(target=_train, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        rates = [answers.get(timeout=LIMIT_SECONDS) for _ in processes]
    except queue.Empty as error:
        raise RuntimeError(f"{count} parallel processes: one does not answer") from error
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    if problems := [rate for rate in rates if isinstance(rate, str)]:
        raise RuntimeError(f"{count} parallel processes: {problems[0]}")
    return sum(rates)


def _train(
    setting: Setting, variant: Variant, steps: int, threads: int, together: Barrier, answers: Any
) -> None:
    torch.set_num_threads(threads)  # as with `protocol.workers`: results may depend on it
    try:
        loop = Loop(setting, variant)
        loop.advance(1 + 2 * variant.workers)
        together.wait(LIMIT_SECONDS)
        answers.put(steps * setting.batch / loop.advance(steps))
        together.wait(LIMIT_SECONDS)  # none has the device alone at the end
    except Exception as error:
        together.abort()
        answers.put((str(error).splitlines() or [repr(error)])[0])
