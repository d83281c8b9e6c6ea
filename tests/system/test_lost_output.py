"""Commands whose output cannot be written."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", ["scripts/runs.py --runs=.", "train.py --help"])
def test_a_closed_pipe_and_a_full_disk_end_in_at_most_one_line(tmp_path, command):
    words = shlex.split(f"{sys.executable} {ROOT}/{command}")
    read, write = os.pipe()
    os.close(read)
    for output, count in ((write, 0), (os.open("/dev/full", os.O_WRONLY), 1)):
        pipes = {"stdout": output, "stderr": subprocess.PIPE}
        done = subprocess.run(words, cwd=tmp_path, text=True, check=False, **pipes)
        os.close(output)
        lines = done.stderr.splitlines()
        assert len(lines) == count
        assert all(line.startswith("error: ") for line in lines)
