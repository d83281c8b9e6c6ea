"""Several trainings on one device at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import queue
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from ._training_loops import Loop, Setting, Variant

LIMIT_SECONDS = 900.0  # of the longest wait for another process


def rate_of_processes(count: int, setting: Setting, variant: Variant, steps: int) -> float:
    """Images/s of `count` processes together, all of which train at the same time.

    Raises:
        RuntimeError: one of them failed, for want of memory, say.
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
        raise RuntimeError(f"{count} processes side by side: one does not answer") from error
    finally:
        for process in processes:
            process.join(timeout=10)
            process.kill()
    if problems := [rate for rate in rates if isinstance(rate, str)]:
        raise RuntimeError(f"{count} processes side by side: {problems[0]}")
    return sum(rates)


def _train(
    setting: Setting, variant: Variant, steps: int, threads: int, together: Barrier, answers: Any
) -> None:
    torch.set_num_threads(threads)  # as `protocol.workers` has it: results may depend on it
    try:
        loop = Loop(setting, variant)
        loop.advance(1 + 2 * variant.workers)
        together.wait(LIMIT_SECONDS)
        answers.put(loop.advance(steps).images_per_second(setting.batch))
        together.wait(LIMIT_SECONDS)  # none has the device to itself at the end
    except Exception as error:
        together.abort()
        answers.put((str(error).splitlines() or [repr(error)])[0])
