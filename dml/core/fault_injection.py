"""Named points at which a test can kill the process.

`DML_FAULT=after_step:7` kills the process, without any cleanup, the seventh time it passes
`fault_point("after_step")`. Without the variable a fault point costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

_passed: Counter[str] = Counter()


def fault_point(name: str) -> None:
    """Kills the process by SIGKILL at the n-th call for which `DML_FAULT` is `name[:n]`, n ≥ 1."""
    point, _, count = os.environ.get("DML_FAULT", "").partition(":")
    if point == name:
        _passed[name] += 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
