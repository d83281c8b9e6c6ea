"""A tracker that waits for a server: training waits for it for some seconds, then goes on."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dml.core.signals import recorded_signals
from dml.tracking.tracker import RunInfo, Tracker

PATIENCE = 10.0  # seconds that a training run waits for a tracker
LOOK_SECONDS = 0.2  # between two looks for a request to stop
# Trackers that this process has stopped to wait for; at its end their libraries would wait again.
given_up: list[str] = []


class PatientTracker(Tracker):
    """Passes calls to a tracker in a thread, in their order.

    While the tracker answers, each call waits for it. Once it takes longer than `PATIENCE`, a note
    says so, the training goes on, and the tracker follows when it can; the end of the run waits for
    it. A request to stop ends the waiting: what the tracker lacks, the same command sends.

    Args:
        tracker: receives all calls, and raises no exceptions (`GuardedTracker`).
        name: for the note.
        notify: prints the note.
    """

    def __init__(self, tracker: Tracker, name: str, notify: Callable[[str], None]) -> None:
        self.tracker, self.keeps_a_copy = tracker, tracker.keeps_a_copy
        self._name, self._notify = name, notify
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._pending = 0  # calls that have not returned
        self._changed = threading.Condition()
        self._is_late = self._is_given_up = False
        # A daemon: it does not keep a process that was asked to stop.
        threading.Thread(target=self._work, daemon=True, name="tracker").start()

    def start(self, run: RunInfo) -> None:
        """Begins a run."""
        info = replace(run, notify=self._say)
        self._pass(lambda: self.tracker.start(info))

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Passes one row."""
        row = copy.deepcopy(metrics)
        self._pass(lambda: self.tracker.log(row, step))

    def job_done(self, result: dict[str, Any]) -> None:
        """Passes the scores of a model."""
        kept = copy.deepcopy(result)
        self._pass(lambda: self.tracker.job_done(kept))

    def trial_done(self, trial: dict[str, Any]) -> None:
        """Passes a finished trial."""
        kept = copy.deepcopy(trial)
        self._pass(lambda: self.tracker.trial_done(kept))

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Passes the scores of the run."""
        kept, paths = copy.deepcopy(summary), list(pictures)
        self._pass(lambda: self.tracker.conclude(kept, paths))

    def finish(self, status: int = 0) -> None:
        """Closes the run, and waits for it; not if the run was stopped before the tracker answered.

        A run that has finished waits as long as the tracker does.
        """
        answers = status == 0 or not self._pending
        if answers:
            self._add(lambda: self.tracker.finish(status))
            answers = self._wait(None if status == 0 else PATIENCE)
        if not answers:
            self._is_given_up = True
            given_up.append(self._name)
            self._notify(
                f"note: tracking: {self._name} has not answered; the same command sends it the "
                f"missing rows"
            )

    def _say(self, line: str) -> None:
        """Prints a line of the tracker, which says no more once it is given up."""
        if not self._is_given_up:
            self._notify(line)

    def _pass(self, work: Callable[[], None]) -> None:
        self._add(work)
        if self._is_late:
            self._is_late = not self._wait(0)
        elif not self._wait(PATIENCE) and not recorded_signals:
            self._is_late = True
            self._notify(
                f"note: tracking: {self._name} has not answered for {PATIENCE:.0f} seconds; the "
                f"run goes on, and {self._name} follows when it answers"
            )

    def _add(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._pending += 1
        self._calls.put(work)

    def _wait(self, seconds: float | None) -> bool:
        """Waits until all calls have returned; returns False if they have not.

        Args:
            seconds: the longest time; None: until a request to stop, which also ends the others.
        """
        end = time.monotonic() + (float("inf") if seconds is None else seconds)
        with self._changed:
            while self._pending and not recorded_signals:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, LOOK_SECONDS))
            return not self._pending

    def _work(self) -> None:
        while True:
            work = self._calls.get()
            try:
                if not self._is_given_up:
                    work()
            finally:
                with self._changed:
                    self._pending -= 1
                    self._changed.notify_all()
