"""Commands whose output cannot be written."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dml.cli.entry_point import main
from dml.cli.program import COMMANDS
from tests.conftest import TINY
from tests.forked import context

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


VERBS = ["", *(f"{name} --help" for name in COMMANDS), "runs --runs=.", "plan mft_table12"]


@pytest.mark.parametrize("command", VERBS)
def test_a_closed_pipe_and_a_full_disk_end_in_at_most_one_line(tmp_path, command):
    words = [sys.executable, "-m", "dml", *command.split()]
    read, write = os.pipe()
    os.close(read)
    for output, count in ((write, 0), (os.open("/dev/full", os.O_WRONLY), 1)):
        pipes = {"stdout": output, "stderr": subprocess.PIPE}
        done = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, text=True, check=False, **pipes)
        os.close(output)
        lines = done.stderr.splitlines()
        assert len(lines) == count
        assert all(line.startswith("error: ") for line in lines)


@pytest.mark.promise(
    "guides/resume.md",
    "the output breaks (`| head`, a `tee` that dies, a full disk behind `>`, a terminal that is "
    "gone without SIGHUP): a training run goes on, its lines and one about the output are in "
    "`train.log`, and its scores are in its folder",
)
@pytest.mark.parametrize("closed", [(1,), (1, 2)], ids=["stdout", "stdout-and-stderr"])
@pytest.mark.parametrize("broken", ["a pipe", "a full disk"])
def test_a_training_goes_on_without_its_output(tmp_path, capfd, broken, closed):
    read, write = os.pipe()
    os.close(read)
    output = write if broken == "a pipe" else os.open("/dev/full", os.O_WRONLY)
    process = context().Process(target=train, args=(tmp_path, output, closed))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(list(tmp_path.rglob("summary.json"))) == 1
    lines = capfd.readouterr().err.count("the output cannot be written")
    assert lines == (0 if 2 in closed else 1)
    (log,) = tmp_path.rglob("train.log")
    assert log.read_text().count("the output cannot be written") == 1


def train(folder, output, numbers):
    """Trains, with an output in place of stdout, or of stdout and stderr."""
    for number in numbers:
        os.dup2(output, number)
    os.chdir(folder)
    sys.argv = ["dml", "train", *TINY, "protocol.epochs=1"]
    os._exit(main())


@pytest.mark.parametrize(
    ("command", "status", "closed"),
    [
        ("runs --runs=.", 0, (1,)),
        ("runs --runs=.", 0, (2,)),
        ("plan mft_table12", 0, (0, 1, 2)),
        ("train --cfg job", 0, (1,)),
        ("train loss=mfcwm", 2, (2,)),
        ("train loss=mfcwm", 2, (0, 1, 2)),
        ("search absent.npz 0", 1, (0, 1, 2)),
    ],
)
def test_closed_streams(tmp_path, command, status, closed):
    streams = " ".join(f"{number}>&-" for number in closed)
    line = f"{shlex.quote(sys.executable)} -m dml {command} {streams}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert b"Traceback" not in done.stderr
