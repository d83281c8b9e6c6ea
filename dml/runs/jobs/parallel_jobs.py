"""Several models in parallel, each in its own process; the results are those of a serial run."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import torch

from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.runs.console import console
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import Job
from dml.runs.jobs.job_process import JobTask, run_process
from dml.runs.jobs.job_result import read_result
from dml.runs.jobs.job_tables import log_row, move_job_rows, open_job_tables
from dml.tracking import RunTables, Tracker

POLL_SECONDS = 0.2
LOG_SECONDS = 5.0  # between two looks at the rows that the processes have written


def train_in_parallel(
    context: RunContext,
    jobs: Sequence[Job],
    folder: RunFolder,
    tables: RunTables,
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
    processes = _Processes(context, folder, tables, tracker, test)
    waiting = list(jobs)
    logs = folder.path / "logs"
    logs.mkdir(exist_ok=True)
    console.print(f"{len(jobs)} models, {workers} at a time; logs in {logs}")
    logged = time.monotonic()
    try:
        while waiting or processes.running:
            while waiting and len(processes.running) < workers:
                processes.start(waiting.pop(0))
            wait([process.sentinel for process in processes.running], timeout=POLL_SECONDS)
            if time.monotonic() > logged + LOG_SECONDS:
                processes.log_rows()
                logged = time.monotonic()
            processes.collect_finished()
            request = stop()
            if request is not None:
                raise request
    finally:
        processes.terminate()
    tables.sort()


class _Processes:
    """The processes that train models of a run.

    Attributes:
        running: the job and the task of each process.
    """

    def __init__(
        self,
        context: RunContext,
        folder: RunFolder,
        tables: RunTables,
        tracker: Tracker,
        test: bool,
    ) -> None:
        self.context, self.folder, self.tables = context, folder, tables
        self.tracker, self.test = tracker, test
        self.running: dict[BaseProcess, tuple[Job, JobTask]] = {}
        self._devices = _list_devices(context)
        self._spawn = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA

    def start(self, job: Job) -> None:
        """Starts the process of a job on the device with the fewest processes."""
        busy = [task.config.device for _, task in self.running.values()]
        task = self._create_task(job, min(self._devices, key=busy.count))
        job_tables = open_job_tables(self.folder, job)
        job_tables.adopt(self.tables, job.key)  # the job may have been started before
        process: BaseProcess = self._spawn.Process(target=run_process, args=(task,), name=job.name)
        process.start()
        self.running[process] = (job, task)

    def log_rows(self) -> None:
        """Sends the rows of running jobs to the tracker, which may have received them before."""
        for job, _ in self.running.values():
            for row in open_job_tables(self.folder, job).history.job_rows(*job.key):
                log_row(row, job, self.tracker)

    def collect_finished(self) -> None:
        """Takes over rows and results of the processes that ended.

        Raises:
            RunStopped: one of them was stopped.
            UserError: one of them failed.
        """
        for process in [one for one in self.running if not one.is_alive()]:
            job, task = self.running.pop(process)
            move_job_rows(self.tables, job, self.folder, self.tracker)
            if process.exitcode != 0:
                raise _describe_failure(process, job, task)
            result = read_result(self.folder.job(job.name))
            if result is not None:
                self.tracker.job_done(result)
                score = result["validation"][self.context.config.protocol.select_metric]
                console.print(f"{job.name}  done, validation {100 * score:.2f}")

    def terminate(self) -> None:
        """Asks the processes to save and exit, waits for them, and takes over their rows."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.join()
        for job, _ in self.running.values():
            move_job_rows(self.tables, job, self.folder, self.tracker)

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
