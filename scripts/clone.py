"""Ends a command in one line where the environment is not active; imported first by every command.

Also makes `dml` and `scripts` of this clone importable, from whatever folder a script is run, and
the user's modules in that folder.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.append(os.getcwd())


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints a line where Ctrl-C comes before the command's main function, which reports others."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _report

for package in ("torch", "hydra"):
    if find_spec(package) is None:
        activate = 'run "source .venv/bin/activate" (or "make install")'
        sys.exit(f"error: {package} is not installed; {activate}")
