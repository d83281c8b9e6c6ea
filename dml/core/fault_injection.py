"""Named points at which a test can kill the process.

`DML_FAULT=after_step:7` kills the process, without any cleanup, the seventh time it passes
`fault_point("after_step")`; `after_step:7@1` the process of rank 1 only. Without the variable a
fault point costs one look-up.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from threading import Lock

_passed: Counter[str] = Counter()
_counting = Lock()  # checkpoints are written by a thread


def fault_point(name: str) -> None:
    """Kills the process by SIGKILL if `DML_FAULT` is this point (`name[:n][@rank]`, n from 1)."""
    wanted = os.environ.get("DML_FAULT")
    if not wanted:
        return
    place, _, rank = wanted.partition("@")
    point, _, count = place.partition(":")
    if point != name or (rank and rank != os.environ.get("RANK")):
        return
    with _counting:
        _passed[name] += 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
