"""Runs that are killed again and again: the same command ends with the same results."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time

import pytest

from dml.cli.entry_point import main
from dml.core.exit_status import ExitStatus
from tests.conftest import TINY
from tests.forked import context
from tests.runs.small_runs import SMALL as FOLDS
from tests.terminals import Terminal

STOPS = 20
SECONDS = (0.3, 5.0)  # before a stop
SMALL = (*TINY, "protocol.epochs=6")
SEARCH = (*FOLDS, "protocol.repeats=1", "search=bayes", "search.trials=4")
COMMANDS = {
    "grid": ("-m", *SMALL, "seed=0,1", "data.workers=1"),
    "ccp": (*SMALL, "method=ccp", "loss=c1"),
    "metrix": (*SMALL, "method=metrix", "loss=contrastive"),
    "xbm": (*SMALL, "method=xbm", "loss=contrastive"),
    "folds": (*FOLDS, "protocol.epochs=4"),
    "parallel-folds": (*FOLDS, "protocol.epochs=4", "protocol.workers=2"),
    "search": (*SEARCH, "search.startup=2"),
    # Points of the sampler would depend on the trials that have ended when they are drawn.
    "parallel-search": (*SEARCH, "search.startup=4", "search.pruning=false", "protocol.workers=2"),
    "two-processes": (
        *SMALL, "embedder.freeze_batch_norm=true", "data.batch_size=60",
        "protocol.steps_per_epoch=3",
    ),
}  # fmt: skip


class InTerminal:
    """A command in a terminal, with its loading processes and workers."""

    statuses = (0, -signal.SIGKILL, ExitStatus.HUNG_UP)

    def __init__(self, words, folder):
        self.terminal = Terminal(("train", *words), folder)
        self.process = self.terminal.process

    def runs_until(self, end):
        """Reads its output until a time or its end; returns whether it still runs."""

        def is_over():
            return self.process.exitcode is not None or time.monotonic() > end

        self.terminal.read_until(is_over, longest=3600.0)
        return self.process.exitcode is None

    def stop(self, draw):
        """Kills the whole terminal, or the process alone, or closes the terminal."""
        way = draw.choice(["kill all", "kill one", "close"])
        if way == "kill all":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif way == "kill one":
            os.kill(self.process.pid, signal.SIGKILL)
        else:
            self.terminal.close()
        return way

    def end(self):
        """Waits for its end, and returns its exit status."""
        self.process.join()
        self.terminal.close()
        return self.process.exitcode


class TwoProcesses:
    """Two processes that torchrun might have started for one model."""

    statuses = (0, -signal.SIGKILL)

    def __init__(self, words, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.processes = []
        for rank in range(2):
            process = context().Process(target=self._become, args=(words, folder, port, rank))
            process.start()
            self.processes.append(process)

    def _become(self, words, folder, port, rank):
        os.setsid()
        os.chdir(folder)
        log = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        ranks = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "tests"}
        os.environ.update(ranks | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        sys.argv = ["dml", "train", *words]
        os._exit(main())

    def runs_until(self, end):
        for process in self.processes:
            process.join(None if end == float("inf") else max(0.0, end - time.monotonic()))
        return any(process.exitcode is None for process in self.processes)

    def stop(self, draw):
        """Kills one process; torchrun ends the other a moment later."""
        first, second = draw.sample(self.processes, 2)
        os.kill(first.pid, signal.SIGKILL)
        second.join(draw.uniform(0.0, 2.0))
        if second.exitcode is None:
            os.kill(second.pid, signal.SIGKILL)
        return "kill one"

    def end(self):
        for process in self.processes:
            process.join()
        codes = {process.exitcode for process in self.processes}
        return -signal.SIGKILL if -signal.SIGKILL in codes else max(codes)


def results(folder):
    """Histories, scores, weights and trials below a folder, by the names of their files."""
    found = {}
    for name in ("history.csv", "best.pt", "trials.csv", "best.yaml"):
        for path in folder.glob(f"outputs/single/**/{name}"):
            found[path.relative_to(folder)] = path.read_bytes()
    for path in folder.glob("outputs/single/*/*/summary.json"):
        summary = json.loads(path.read_text())
        scores = {key: summary.get(key) for key in ("metrics", "concatenated", "best_epoch")}
        found[path.relative_to(folder)] = scores
    return found


@pytest.mark.soak
@pytest.mark.parametrize("kind", COMMANDS)
def test_stopped_runs_have_the_same_results(kind, tmp_path):
    """They are killed, or their terminals closed, at random moments, which follow from the kind."""
    words, start = COMMANDS[kind], TwoProcesses if kind == "two-processes" else InTerminal
    (calm := tmp_path / "calm").mkdir()
    undisturbed = start(words, calm)
    assert not undisturbed.runs_until(float("inf"))
    assert undisturbed.end() == ExitStatus.FINISHED
    expected, draw = results(calm), random.Random(kind)
    stops, completions = [], 0
    while len(stops) < STOPS:
        (folder := tmp_path / str(completions)).mkdir()
        status = None
        while status != ExitStatus.FINISHED:
            run = start(words, folder)
            end = time.monotonic() + draw.uniform(*SECONDS)
            if len(stops) == STOPS:
                end = float("inf")
            if run.runs_until(end):
                stops.append(run.stop(draw))
            status = run.end()
            assert status in start.statuses
        completions += 1
        found = results(folder)
        assert found.keys() == expected.keys()
        assert [name for name in expected if found[name] != expected[name]] == []
    print(f"{kind}: {len(stops)} stops, of them {stops.count('close')} closed terminals, ", end="")
    print(f"{completions} completions")
    assert not multiprocessing.active_children()
