"""Ends a command in one line where the environment is not active; imported first by every command.

Also makes `dml` and `scripts` of this clone importable, from whatever folder a script is run.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

for package in ("torch", "hydra"):
    if find_spec(package) is None:
        activate = 'run "source .venv/bin/activate" (or "make install")'
        sys.exit(f"error: {package} is not installed; {activate}")
