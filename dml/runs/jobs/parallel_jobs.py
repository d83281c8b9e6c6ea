"""Several models in parallel, each in its own process; the results are those of a serial run."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.core.progress import show_task
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_history import log_row, move_job_rows, open_job_history
from dml.runs.jobs.job_list import Job
from dml.runs.jobs.job_process import JobTask, run_process
from dml.runs.jobs.job_result import read_result
from dml.runs.training_status import describe_evaluation
from dml.tracking import History, Tracker
from dml.training.stopping import Stopping

POLL_SECONDS = 0.2
LOG_SECONDS = 5.0  # between two looks at the rows that the processes have written


def train_in_parallel(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    history: History,
    tracker: Tracker,
    stop: Callable[[], RunStopped | None],
    test: bool,
) -> None:
    """Trains the jobs, `protocol.workers` at a time, and collects what they wrote.

    Raises:
        RunStopped: `stop` asked for it; the processes have saved.
        UserError: one of them failed; the others were stopped and have saved.
    """
    workers = context.config.protocol.workers
    processes = _Processes(context, folder, history, tracker, test)
    waiting = list(jobs)
    logs = folder.path / "logs"
    logs.mkdir(exist_ok=True)
    print_line(f"{len(jobs)} models, {workers} at a time; logs in {logs}")
    logged = time.monotonic()
    epochs = context.config.protocol.epochs
    title = f"{context.position.describe_trial()}{len(jobs)} models"
    try:
        with show_task(title, len(jobs) * epochs) as update:
            while waiting or processes.running:
                while waiting and len(processes.running) < workers:
                    processes.start(waiting.pop(0))
                sentinels = [process.sentinel for process in processes.running]
                wait(sentinels, timeout=POLL_SECONDS)
                present = [one.epochs.value for one in processes.running.values()]
                done = len(jobs) - len(waiting) - len(present)
                update(completed=done * epochs + sum(present), description=f"{title}, {done} done")
                if time.monotonic() > logged + LOG_SECONDS:
                    processes.log_rows()
                    logged = time.monotonic()
                processes.collect_finished()
                request = stop()
                if request is not None:
                    raise request
    finally:
        processes.terminate()
    history.sort()


@dataclass
class _Running:
    """A job that a process trains.

    Attributes:
        job, task: the model, and the input of the process.
        epochs: shared number of completed epochs.
        best: of the evaluations shown so far.
        shown: step of the last one.
        untrained: score before training.
    """

    job: Job
    task: JobTask
    epochs: Any
    best: Stopping
    shown: float = -1.0
    untrained: float = 0.0


class _Processes:
    """The processes that train models of a run.

    Attributes:
        running: the job of each process.
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        history: History,
        tracker: Tracker,
        test: bool,
    ) -> None:
        self.context, self.folder, self.history = context, folder, history
        self.tracker, self.test = tracker, test
        self.running: dict[BaseProcess, _Running] = {}
        self._devices = _list_devices(context)
        self._spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA

    def start(self, job: Job) -> None:
        """Starts the process of a job on the device with the fewest processes."""
        busy = [one.task.config.device for one in self.running.values()]
        task = self._create_task(job, min(self._devices, key=busy.count))
        job_history = open_job_history(self.folder, job)
        job_history.adopt(self.history, job.key)  # the job may have been started before
        epochs = self._spawn.Value("d", 0.0, lock=False)
        process: BaseProcess = self._spawn.Process(
            target=run_process, args=(task, epochs), name=job.name
        )
        best = Stopping(None, min_delta=self.context.config.protocol.stopping.min_delta)
        running = _Running(job, task, epochs, best)
        self._show_evaluations(running, printed=False)  # of an earlier process
        process.start()
        self.running[process] = running

    def log_rows(self) -> None:
        """Sends the rows of running jobs to the tracker, which may have received them before."""
        for one in self.running.values():
            for row in self._show_evaluations(one):
                log_row(row, one.job, self.tracker)

    def collect_finished(self) -> None:
        """Takes over rows and results of the processes that ended.

        Raises:
            RunStopped: one of them was stopped.
            UserError: one of them failed.
        """
        for process in [one for one in self.running if not one.is_alive()]:
            ended = self.running.pop(process)
            job, task = ended.job, ended.task
            self._show_evaluations(ended)
            move_job_rows(self.history, job, self.folder, self.tracker)
            if process.exitcode != 0:
                raise _describe_failure(process, job, task)
            result = read_result(self.folder.job(job.name))
            if result is not None:
                self.tracker.job_done(result)
                score = result["validation"][self.context.config.protocol.select_metric]
                print_line(f"{job.name}  done, validation {100 * score:.2f}")

    def terminate(self) -> None:
        """Asks the processes to save and exit, waits for them, and takes over their rows."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.join()
        for one in self.running.values():
            move_job_rows(self.history, one.job, self.folder, self.tracker)

    def _show_evaluations(self, one: _Running, printed: bool = True) -> list[dict[str, float]]:
        """Prints the evaluations that are new; the process has logged them. Returns all rows."""
        protocol = self.context.config.protocol
        rows = open_job_history(self.folder, one.job).job_rows(*one.job.key)
        for row in rows:
            if row["step"] <= one.shown:
                continue
            one.shown = row["step"]
            score = row[protocol.select_metric]
            if "loss" in row:
                one.best.update(score, row["epoch"], int(row["step"]))
            else:
                one.untrained = score
            if printed and not self.context.position.trials:
                metric = protocol.select_metric
                line = describe_evaluation(row, protocol.epochs, metric, one.best, one.untrained)
                print_line(f"{one.job.name}  {line}", logged=False)
        return rows

    def _create_task(self, job: Job, device: str) -> JobTask:
        log = self.folder.path / "logs" / f"{job.name}.log"
        return JobTask(
            self.context.config.model_copy(update={"device": device}),
            self.context.identity,
            job.key,
            self.folder.path,
            torch.get_num_threads(),
            self.test,
            log,
            log.with_suffix(".problem"),
        )


def _list_devices(context: RunContext) -> list[str]:
    """All GPUs where the config leaves the choice, else the device that it names."""
    if context.config.device in ("auto", "cuda") and context.device.type == "cuda":
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [str(context.device)]


def _describe_failure(process: BaseProcess, job: Job, task: JobTask) -> UserError | RunStopped:
    if task.problem.exists():
        message = task.problem.read_text(encoding="utf-8")
        task.problem.unlink()
        return UserError(message)
    if process.exitcode == ExitStatus.TIME_LIMIT:
        return RunStopped(f"{job.name} was stopped", ExitStatus.TIME_LIMIT)
    return UserError(
        f"protocol.workers: the process of {job.name} ended with status {process.exitcode}; "
        f"see {task.log}"
    )
