"""Hours of search and training under random kills: no result lost, no process left, no growth.

`SOAK_MINUTES=120 python -m pytest -m soak -s tests/system/test_endurance.py` (120 is the default)
prints measurements. Two commands run undisturbed meanwhile and are watched; others are killed again
and again, at random moments of their start and their work, must finish all the same, and then have
the results of an undisturbed run. `SOAK_MINUTES=10` ends after one round of them.
"""

from __future__ import annotations

import csv
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.system.finished_runs import only_run_folder, results_of

ROOT = Path(__file__).parents[2]
MARK = "DML_ENDURANCE"  # set in the environment of every process that this test starts
TRAINING = (
    "data=glyphs", "data.reader.classes=24", "data.reader.per_class=12", "backbone.width=8",
    "embedder.size=8", "data.batch_size=16", "protocol.stopping.patience=null",
)  # fmt: skip
SEARCH = (
    *TRAINING, "protocol=mlrc", "search=bayes", "search.startup=3", "protocol.steps_per_epoch=10",
    "protocol.evaluate_every=1", "protocol.evaluate_unit=epochs",
)  # fmt: skip
KILLED = {  # one or two commands on one folder, each in one process or several
    "training": (1, (*TRAINING, "protocol.epochs=60", "data.workers=2")),
    "search": (1, (*SEARCH, "protocol.epochs=4", "search.trials=6", "protocol.repeats=2")),
    "parallel folds": (
        1,
        (*SEARCH, "protocol.epochs=6", "search.trials=4", "protocol.workers=2"),
    ),
    "two workers": (2, (*SEARCH, "protocol.epochs=4", "search.trials=8", "protocol.repeats=1")),
}  # fmt: skip
ENDLESS = {
    "training": (*TRAINING, "protocol.epochs=1000000", "protocol.evaluate_every=20"),
    "search": (*SEARCH, "protocol.epochs=1", "search.trials=1000000", "search.sampler=tpe"),
}


@pytest.mark.soak
def test_hours_of_search_and_training_with_random_kills(tmp_path):
    minutes = float(os.environ.get("SOAK_MINUTES", "120"))
    end = time.monotonic() + 60 * minutes
    watched = {
        name: Watched(_start(tmp_path / f"endless-{name}", (*options, f"max_minutes={minutes}")))
        for name, options in ENDLESS.items()
    }
    moments = random.Random(0)
    rounds, kills = 0, 0
    while time.monotonic() < end:
        for name, (workers, options) in KILLED.items():
            seed = f"seed={rounds}"
            killed = tmp_path / f"{rounds}-{name}-killed"
            kills += _kill_until_finished(killed, (*options, seed), workers, moments, watched, name)
            if workers == 1:
                calm = tmp_path / f"{rounds}-{name}-calm"
                _wait(_start(calm, (*options, seed)), watched)
                results = [results_of(only_run_folder(outputs)) for outputs in (killed, calm)]
                assert results[0] == results[1], f"{name}: round {rounds}"
            else:
                _assert_each_trial_once(killed, trials=8)
            print(f"round {rounds}: {name} done, {kills} kills so far", flush=True)
            if time.monotonic() > end:
                break
        rounds += 1
    for name, process in watched.items():
        assert process.end() == 75, name  # max_minutes
        print(f"endless {name}: {process.report()}", flush=True)
        process.assert_steady()
    assert kills >= minutes / 3
    print(f"{rounds} rounds, {kills} kills in {minutes:g} minutes", flush=True)


@dataclass
class Watched:
    """A command that runs undisturbed, with its memory, open files and threads at each look."""

    process: subprocess.Popen[bytes]
    megabytes: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    looked: float = 0.0

    def look(self) -> None:
        """Measures resident memory, open files and threads, every ten seconds at most."""
        if time.monotonic() - self.looked < 10 or self.process.poll() is not None:
            return
        self.looked = time.monotonic()
        place = Path("/proc") / str(self.process.pid)
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        self.megabytes.append(int(status["VmRSS"].split()[0]) / 1024)
        self.threads.append(int(status["Threads"]))
        self.files.append(len(list((place / "fd").iterdir())))

    def end(self) -> int:
        """Waits for the command's own end; returns its status."""
        return self.process.wait(timeout=600)

    def report(self) -> str:
        """Medians of the first and the last quarter of the looks, start and end left out."""
        parts = (
            f"{name} {statistics.median(first):g} -> {statistics.median(last):g}"
            for name, first, last in self._quarters()
        )
        return ", ".join(parts) + f" ({len(self.files)} looks)"

    def assert_steady(self) -> None:
        """Asserts that open files and threads do not grow, and memory by less than a tenth."""
        for name, first, last in self._quarters():
            allowed = 1.1 if name == "MB" else 1.0
            assert statistics.median(last) <= allowed * statistics.median(first), self.report()

    def _quarters(self) -> list[tuple[str, list[float], list[float]]]:
        seen = (("MB", self.megabytes), ("files", self.files), ("threads", self.threads))
        start = len(self.files) // 10 + 1  # imports and first batches
        quarter = max(1, (len(self.files) - start) // 4)
        return [
            (name, list(values[start : start + quarter]), list(values[-quarter - 1 : -1]))
            for name, values in seen
        ]


def _start(outputs: Path, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    log = outputs.with_suffix(".log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "train.py", f"outputs={outputs}", "device=cpu", *options],
            cwd=ROOT, stdout=log, stderr=log, env={**os.environ, MARK: outputs.name},
        )  # fmt: skip


def _kill_until_finished(
    outputs: Path,
    options: tuple[str, ...],
    workers: int,
    moments: random.Random,
    watched: dict[str, Watched],
    name: str,
) -> int:
    """Starts the commands, kills one at random moments, starts it again; returns the kills."""
    running = [_start(outputs, options) for _ in range(workers)]
    count = 0
    while running:
        while_it_starts = count % 4 == 0
        seconds = moments.uniform(0, 8) if while_it_starts else moments.uniform(3, 30)
        pause = time.monotonic() + seconds
        while time.monotonic() < pause and any(p.poll() is None for p in running):
            time.sleep(0.2)
            _look(watched)
        for process in list(running):
            if process.poll() is not None:
                running.remove(process)
                assert process.returncode == 0, _log(outputs)
        if running and count < 12:  # after that it may finish
            victim = moments.choice(running)
            victim.send_signal(moments.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            status = victim.wait(timeout=120)
            running.remove(victim)
            if status == 0:
                continue  # it finished just then
            assert status in (-signal.SIGKILL, -signal.SIGTERM, 143), _log(outputs)
            count += 1
            if workers == 1:
                _assert_nothing_left(outputs.name, name)
            running.append(_start(outputs, options))
    _assert_nothing_left(outputs.name, name)
    return count


def _assert_nothing_left(mark: str, name: str) -> None:
    """Asserts that loaders and workers of a killed command end within a minute."""
    deadline = time.monotonic() + 60
    while left := _alive(mark):
        assert time.monotonic() < deadline, f"{name}: processes {left} outlive their command"
        time.sleep(0.2)


def _alive(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}\0".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue  # gone, or a zombie
    return found


def _wait(process: subprocess.Popen[bytes], watched: dict[str, Watched]) -> None:
    while process.poll() is None:
        time.sleep(0.2)
        _look(watched)
    assert process.returncode == 0


def _look(watched: dict[str, Watched]) -> None:
    for name, process in watched.items():
        process.look()
        assert process.process.poll() in (None, 75), name


def _assert_each_trial_once(outputs: Path, trials: int) -> None:
    with (only_run_folder(outputs).search / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    complete = [int(row["number"]) for row in rows if row["state"] == "complete"]
    assert sorted(complete) == list(range(trials)), rows


def _log(outputs: Path) -> str:
    return outputs.with_suffix(".log").read_text()[-2000:]
