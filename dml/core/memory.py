"""Free memory, and settings of malloc that keep freed memory for the next allocation.

Each training step on a CPU frees its activations and allocates them again. By default glibc returns
large blocks to the kernel, which clears and maps them again: up to a quarter of the CPU time of a
small network's epoch.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
NEVER_TRIM = 2**31 - 1  # bytes, the largest value that mallopt accepts
TUNABLES = f"glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold={NEVER_TRIM}"

MEMORY_INFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")  # of a container, whose limit may be lower


def available_memory() -> int:
    """Returns the bytes that this process may use without swapping; 0 where they are not known."""
    available = 0
    with suppress(OSError, ValueError, IndexError):
        for line in MEMORY_INFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    with suppress(OSError, ValueError):  # ValueError: "max", no limit
        limit = int((GROUP / "memory.max").read_text())
        used = int((GROUP / "memory.current").read_text())
        available = min(available, max(0, limit - used))
    return available


def keep_freed_memory() -> bool:
    """Keeps freed memory in this process and its child processes.

    Returns:
        False, without any change, if the C library is not glibc (macOS, Alpine).
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        kept = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)
    except (OSError, AttributeError):
        return False
    os.environ.setdefault("GLIBC_TUNABLES", TUNABLES)
    return bool(kept)


def keeps_freed_memory() -> bool:
    """Returns whether `keep_freed_memory` was called in this process or its parent."""
    return TUNABLES in os.environ.get("GLIBC_TUNABLES", "")
