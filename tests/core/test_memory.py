"""Freed memory that stays in the process."""

import subprocess
import sys

import pytest

from dml.core import memory

CHILD = """
import ctypes, os, sys
from dml.core.memory import keep_freed_memory, keeps_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
assert kept == keeps_freed_memory()
pages = lambda: int(open("/proc/self/statm").read().split()[1])
before, block = pages(), bytearray(b"1") * (64 << 20)
del block
print((pages() - before) * os.sysconf("SC_PAGE_SIZE") >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
@pytest.mark.parametrize(("word", "kept"), [("keep", True), ("return", False)])
def test_a_freed_block_stays_in_the_process_only_if_asked(monkeypatch, word, kept):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)  # of a run in this process
    result = subprocess.run(
        [sys.executable, "-c", CHILD, word], capture_output=True, text=True, check=True
    )
    assert (int(result.stdout) >= 60) == kept


@pytest.mark.parametrize(
    ("limit", "expected"), [("max", 3 << 30), (str(2 << 30), 1 << 30), ("5", 0), (None, 3 << 30)]
)
def test_available_memory_is_that_of_the_container(tmp_path, monkeypatch, limit, expected):
    information = tmp_path / "meminfo"
    information.write_text(f"MemTotal: 9 kB\nMemAvailable:   {3 << 20} kB\n")
    monkeypatch.setattr(memory, "MEMORY_INFO", information)
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text(f"{1 << 30}\n")
    assert memory.available_memory() == expected
    information.unlink()  # not Linux
    assert memory.available_memory() == 0
