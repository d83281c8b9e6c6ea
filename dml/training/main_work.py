"""The wait for the work of the first process, which may take longer than a collective operation.

The processes of a group meet in collective operations, which end after some minutes, since one of
the processes may hang. Scores of a large dataset take longer on the first process. So it counts its
finished works in the launcher's store, and the others look there before they meet it, for as long
as it gives signs of life.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch.distributed as dist

KEY = "finished works"
SHORTEST, LONGEST = 0.001, 0.5  # seconds between two looks
SILENT_SECONDS = 15.0  # from which the first process may be gone, which the operation then tells


class MainWork:
    """Counts the works of the first process.

    Args:
        store: of the process group.
        silent_seconds: returns the time since the last sign of life of a rank.
    """

    def __init__(self, store: dist.Store, silent_seconds: Callable[[int], float]) -> None:
        self._store, self._silent_seconds = store, silent_seconds
        self._count = 0

    def end(self, is_main: bool) -> None:
        """Ends a work: at once on the first process; on the others once that has ended it.

        Raises:
            RuntimeError: the store cannot be reached.
        """
        self._count += 1
        if is_main:
            self._store.set(KEY, str(self._count))
            return
        pause = SHORTEST
        while not self._is_ended() and self._silent_seconds(0) < SILENT_SECONDS:
            time.sleep(pause)
            pause = min(LONGEST, 1.5 * pause)

    def _is_ended(self) -> bool:
        return self._store.check([KEY]) and int(self._store.get(KEY)) >= self._count
