import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    "train.py",
    "dml/__main__.py",
    *(f"scripts/{path.name}" for path in ROOT.glob("scripts/*.py")),
    *(f"studies/{path.name}" for path in ROOT.glob("studies/*.py") if "main(" in path.read_text()),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_outside_the_environment_ends_in_one_line(command, tmp_path):
    done = subprocess.run(
        [sys.executable, "-S", ROOT / command],  # without site-packages
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        'error: torch is not installed; run "source .venv/bin/activate" (or "make install")\n'
    )
