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


@pytest.mark.parametrize(
    ("command", "status", "closed"),
    [
        ("scripts/runs.py --runs=.", 0, (1,)),
        ("scripts/runs.py --runs=.", 0, (2,)),
        ("scripts/plan.py mft_table12", 0, (0, 1, 2)),
        ("train.py --cfg job", 0, (1,)),
        ("train.py loss=mfcwm", 2, (2,)),
        ("train.py loss=mfcwm", 2, (0, 1, 2)),
        ("search.py absent.npz 0", 1, (0, 1, 2)),
    ],
)
def test_closed_streams(tmp_path, command, status, closed):
    streams = " ".join(f"{number}>&-" for number in closed)
    line = f"{shlex.quote(sys.executable)} {ROOT}/{command} {streams}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
