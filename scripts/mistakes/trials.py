"""The tests of a mistake, run in a copy of the repository that has the mistake in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from dml.core.errors import UserError
from scripts.mistakes import report_plugin
from scripts.mistakes.catalog import Mistake
from scripts.mistakes.copies import forget_compiled
from scripts.mistakes.planting import plant

# Exceptions of a source that cannot run: any test finds them.
BROKEN = {"ImportError", "SyntaxError", "NameError"}
SHOWN = 30  # lines of pytest's output where the unchanged copy fails


@dataclass(frozen=True)
class Trial:
    """The outcome of the tests of a mistake.

    Attributes:
        mistake: that was planted.
        seconds: of its tests, with the start of pytest.
        test: id of the test that failed, or empty.
        problem: why the mistake counts as not found, or empty.
    """

    mistake: Mistake
    seconds: float
    test: str = ""
    problem: str = ""

    @property
    def is_nearest(self) -> bool:
        """Whether the first of the mistake's test files found it."""
        return self.test.partition("::")[0] == self.mistake.tests[0]


class Laboratory:
    """Runs tests in copies inside of a temporary folder.

    Args:
        copy: of the unchanged repository.
        folder: for the copies and the temporary files of tests.
        seconds: after which the tests of a mistake are stopped.
    """

    def __init__(self, copy: Path, folder: Path, seconds: float) -> None:
        self._copy = copy
        self._folder = folder
        self._seconds = seconds
        self._plugins = folder / "plugins"  # not of the copy, whose code may be of any kind
        self._plugins.mkdir()
        shutil.copy(report_plugin.__file__, self._plugins)
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False
        self._lock = Lock()

    def test_unchanged(self, tests: Sequence[str], processes: int) -> None:
        """Runs test files in the unchanged copy.

        Raises:
            UserError: a test fails; the end of pytest's output is in the message.
        """
        words = [*tests, "-n", str(processes), "--dist", "worksteal"] if processes > 1 else tests
        process = self._start(self._copy, words, self._folder / "unchanged.jsonl")
        output, _ = process.communicate()
        self._running.discard(process)
        if process.returncode and not self._stopped:
            lines = "\n".join(output.splitlines()[-SHOWN:])
            raise UserError(f"the unchanged copy fails its tests; mend them first\n{lines}")

    def try_mistake(self, mistake: Mistake) -> Trial:
        """Plants a mistake in a copy of its own, runs its tests, and removes the copy."""
        with TemporaryDirectory(dir=self._folder) as name:
            copy = shutil.copytree(self._copy, Path(name) / "copy", symlinks=True)
            forget_compiled(plant(mistake, copy))
            report = Path(name) / "report.jsonl"
            begin = time.monotonic()
            process = self._start(copy, ["-x", *mistake.tests], report)
            try:
                process.communicate(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                problem = f"its tests take more than {self._seconds:g} s"
                return Trial(mistake, time.monotonic() - begin, problem=problem)
            finally:
                self._running.discard(process)
            seconds = time.monotonic() - begin
            test, problem = judge(report, process.returncode)
            return Trial(mistake, seconds, test, problem)

    def stop(self) -> None:
        """Kills all tests that run, and lets none begin."""
        with self._lock:
            self._stopped = True
            for process in [*self._running]:
                _kill(process)

    def _start(self, copy: Path, words: Sequence[str], report: Path) -> subprocess.Popen[str]:
        temporary = report.with_suffix(".tmp")
        temporary.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": f"{copy}{os.pathsep}{self._plugins}",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
            report_plugin.FILE: str(report),
        }
        options = ["-p", "report_plugin", "-p", "no:cacheprovider", "-m", "not soak"]
        with self._lock:
            if self._stopped:
                raise UserError("stopped")
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *words],
                cwd=copy,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        return process


def judge(report: Path, status: int) -> tuple[str, str]:
    """Returns the id of the test that found a mistake, or empty and why it is not found.

    Args:
        report: of the plugin; missing if no test failed.
        status: of pytest.
    """
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
    for line in lines:
        failure = json.loads(line)
        if failure["phase"] == "call" and not BROKEN.intersection(failure["bases"]):
            return failure["test"], ""
    if lines:
        failure = json.loads(lines[0])
        return "", f"{failure['phase']} of {failure['test']}: {failure['bases'][0]}"
    if status == 0:
        return "", "no test fails"
    return "", f"pytest ends with status {status} before a test fails"


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a process with all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
