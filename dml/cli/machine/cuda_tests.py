"""The tests of a clone that need a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from dml.cli.machine.outcome import Outcome

LIMIT_SECONDS = 300.0
MARK = "mark.cuda"  # in the files of such tests
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
NO_TESTS = 5  # exit status of pytest


def try_cuda_tests(clone: Path) -> Outcome:
    """Runs the tests that are marked `cuda`.

    Args:
        clone: root of the repository.
    """
    if find_spec("pytest") is None:
        remedy = "pip install pytest"
        return Outcome("pytest is not installed", remedy, works=False, is_needed=False)
    files = []
    for path in sorted((clone / "tests").rglob("test_*.py")):
        if MARK in path.read_text(encoding="utf-8"):
            files.append(str(path))
    words = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*words, *files],
            cwd=clone,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        remedy = f"run {' '.join(words[1:])} yourself"
        return Outcome(f"not ready after {LIMIT_SECONDS:.0f} s", remedy, works=False)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    result = lines[-1].strip("= ") if lines else f"exit status {done.returncode}"
    remedy = f"{' '.join(['python', *words[1:]])} shows the reasons; paste them into the issue, too"
    return Outcome(result, remedy, works=done.returncode in (0, NO_TESTS))


def _environment() -> dict[str, str]:
    """Returns the environment without the variables of torchrun."""
    environment = {}
    for name, value in os.environ.items():
        if not name.startswith(LAUNCHED):
            environment[name] = value
    return environment
