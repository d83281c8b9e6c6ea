"""Writing beside training: the thread that writes, and the copy of a state that it writes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from dml.core.run_logger import run_logger


class BackgroundWriter:
    """Calls one function at a time in a thread; its error is raised where the caller asks for it.

    The thread ends with the function. It is no daemon: a process that exits waits for it.
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Waits until the function before has returned, and starts this one.

        Raises:
            BaseException: that of the function before; this one is not called.
        """
        self.wait()
        thread = Thread(target=self._run, args=(write,), name="checkpoint writer")
        thread.start()
        self._thread = thread

    def check(self) -> None:
        """Raises the error of a function that has failed, once; does not wait."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Waits until the function has returned, and raises its error, once."""
        self._join()
        self.check()

    def wait_quietly(self) -> None:
        """Waits until the function has returned; its error only goes to the log of the run."""
        self._join()
        if self._error is not None:
            run_logger.warning("%s", self._error)
            self._error = None

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error


def copy_state(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy of a state in the memory of the host, which training does not change.

    Waits once for each device of its tensors. Saved, the copy gives the same file as the state on
    the CPU: types, strides and attributes of dictionaries (versions of modules) are kept, and what
    occurs twice is one object in the copy too.

    Args:
        state: dictionaries, lists and tuples of tensors and of what cannot be changed.
    """
    copies: dict[int, Any] = {}
    devices: set[torch.device] = set()

    def copied(value: Any) -> Any:
        if id(value) not in copies:
            copies[id(value)] = copied_anew(value)
        return copies[id(value)]

    def copied_anew(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_cuda:
            devices.add(value.device)
            # torch pins the memory of a copy that it does not wait for
            return value.detach().to("cpu", non_blocking=True)
        if isinstance(value, Tensor):
            return value.detach().clone()
        if isinstance(value, dict):
            same_attributes = copy.copy(value)
            for key, item in value.items():
                same_attributes[key] = copied(item)
            return same_attributes
        if isinstance(value, list | tuple):
            return type(value)(map(copied, value))
        return value

    result: dict[str, Any] = copied(state)
    for device in devices:
        torch.cuda.synchronize(device)
    return result
