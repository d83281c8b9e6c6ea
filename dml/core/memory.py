"""Memory that a process has freed, kept for its next allocation instead of returned to Linux.

Each step of a training on a CPU frees its activations and allocates the same again. glibc returns
large blocks to the kernel at once, which clears and maps them anew: about a fifth of the CPU time
of a small network's epoch.
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
NEVER_TRIM = 2**31 - 1  # bytes, the largest that mallopt takes
TUNABLES = f"glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold={NEVER_TRIM}"


def keep_freed_memory() -> bool:
    """Keeps freed memory in this process and in those that it starts.

    Returns:
        False where the C library is not glibc (macOS, Alpine), and nothing changes.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        kept = libc.mallopt(M_MMAP_MAX, 0) and libc.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)
    except (OSError, AttributeError):
        return False
    os.environ.setdefault("GLIBC_TUNABLES", TUNABLES)
    return bool(kept)


def keeps_freed_memory() -> bool:
    """Returns True after `keep_freed_memory`, in this process or the one that started it."""
    return TUNABLES in os.environ.get("GLIBC_TUNABLES", "")
