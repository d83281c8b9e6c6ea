import json
import signal
import subprocess
import sys
import time

import pytest

from dml.core.errors import UserError
from studies.comparison.processor_time import ProcessorTime

# Works for a while under a `measure` that writes every 50 ms, then prints and waits to be killed.
INTERRUPTED = """
import sys, time
from pathlib import Path
from studies.comparison.processor_time import ProcessorTime
with ProcessorTime(Path(sys.argv[1])).measure(10, period=0.05):
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    time.sleep(0.5)
    print(time.process_time(), flush=True)
    time.sleep(60)
"""


def fail_after(seconds):
    """Uses the processor for some seconds, then raises an error."""
    work(seconds)
    raise UserError("the loss is not finite")


def work(seconds):
    """Uses the processor for some seconds."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_waiting_costs_nothing_and_work_adds_up(tmp_path):
    measured = ProcessorTime(tmp_path / "search" / "seconds.json")
    assert measured.seconds(10) == 0
    for _ in range(2):
        before = time.process_time()
        with measured.measure(10):
            work(0.2)
            time.sleep(0.3)
        assert time.process_time() - before < 0.45
    assert 0.4 <= measured.seconds(10) < 0.9
    assert measured.seconds(20) == 0
    with measured.measure(20):
        work(0.1)
    assert 0.4 <= ProcessorTime(tmp_path / "search" / "seconds.json").seconds(10) < 0.9


def test_processes_that_were_waited_for_count(tmp_path):
    measured = ProcessorTime(tmp_path / "seconds.json")
    with measured.measure(10):
        code = "import time\nwhile time.process_time() < 0.5: pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert measured.seconds(10) >= 0.5


def test_work_before_a_kill_and_an_error_counts(tmp_path):
    file = tmp_path / "seconds.json"
    command = [sys.executable, "-c", INTERRUPTED, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        used = float(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    before = ProcessorTime(file).seconds(10)
    assert 0.2 <= before <= used
    measured = ProcessorTime(file)
    with pytest.raises(UserError, match="not finite"), measured.measure(10):
        fail_after(0.2)
    assert before + 0.2 <= ProcessorTime(file).seconds(10) < before + 0.5
    assert list(json.loads(file.read_text())) == ["10"]


def test_a_damaged_file_is_named(tmp_path):
    file = tmp_path / "seconds.json"
    file.write_text('{"10": 12')
    with pytest.raises(UserError, match=r"seconds\.json is damaged .* delete it"):
        ProcessorTime(file)
