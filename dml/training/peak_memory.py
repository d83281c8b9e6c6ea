"""The peak memory of this process."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import torch


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory of this process in MB: on the GPU, or else in main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # On Linux, `ru_maxrss` includes the program that started this one; VmHWM does not.
    status = Path("/proc/self/status")
    if status.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return int(peak[1]) / 2**10
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_size / (2**20 if sys.platform == "darwin" else 2**10)
