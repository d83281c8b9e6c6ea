"""Sweepers and launchers other than those of this repository, as Hydra's plugins are written."""

import os
import pickle
import re
import signal
import sys
import time
import types
from itertools import pairwise

import pytest
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper

from dml.cli import hydra_command
from dml.cli.error_lines import report_errors
from dml.core.errors import UserError
from dml.core.launcher import sweep_name
from tests.conftest import TINY
from tests.forked import context
from tests.system.conftest import DIGITS
from tests.system.finished_runs import start


class Climber(Sweeper):
    """Doubles the learning rate as long as the score rises."""

    def __init__(self, max_batch_size=None, params=None, grids=None):
        self.trials = []
        Climber.last = self

    def setup(self, **context):
        self.launcher = Plugins.instance().instantiate_launcher(**context)

    def sweep(self, arguments):
        rate, best = 1e-3, float("-inf")
        while len(self.trials) < 4:
            words = [*arguments, f"optim.lr={rate}"]
            (job,) = self.launcher.launch([words], initial_job_idx=len(self.trials))
            self.trials.append((rate, job.return_value))
            if job.return_value is None or job.return_value <= best:
                break
            rate, best = 2 * rate, job.return_value


@pytest.fixture
def climber(monkeypatch):
    """The words that choose the sweeper, which Hydra expects in a package of plugins."""
    module = types.ModuleType("hydra_plugins.climber")
    module.Climber = Climber
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Climber, "__module__", module.__name__)
    name = f"{module.__name__}.Climber"
    monkeypatch.setitem(Plugins.instance().class_name_to_class, name, Climber)
    return f"hydra.sweeper._target_={name}"


def test_a_sweeper_that_maximizes(climber, command_line, tmp_path):
    words = ("-m", climber, f"outputs={tmp_path}", f"hydra.sweep.dir={tmp_path}/sweep", *TINY)
    status, out, err = command_line(*words)
    assert status == 0, err
    trials = Climber.last.trials
    printed = [float(score) for score in re.findall(r"MAP@R [│ \d.]*│ +([\d.]+) │", out)]
    assert [round(100 * score, 2) for _, score in trials] == pytest.approx(printed, abs=0.01)
    assert len(trials) >= 2
    assert all(after > before for (_, before), (_, after) in pairwise(trials[:-1]))
    assert "note: the sweeper maximizes scores of the test classes" in out


# Hydra loads its plugins a second time when it lists them.
LAUNCHER = Plugins.instance().class_name_to_class[
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
]
LAUNCH = LAUNCHER.launch
started = []


def launch_in_processes(launcher, job_overrides, initial_job_idx):
    """Runs each job in a process of its own and returns what it sends back, as joblib does."""
    returns = []
    for number, overrides in enumerate(job_overrides, initial_job_idx):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            (done,) = LAUNCH(launcher, [overrides], number)
            os.write(writer, pickle.dumps((done.status, done._return_value)))
            os._exit(0)
        started.append(child)
        os.close(writer)
        with open(reader, "rb") as pipe:
            status, value = pickle.loads(pipe.read())
        os.waitpid(child, 0)
        returns.append(JobReturn(overrides=overrides, status=status))
        returns[-1].return_value = value
    return returns


@pytest.fixture
def other_launcher(monkeypatch):
    """Hydra's own launcher with processes, under another name."""
    monkeypatch.setattr(LAUNCHER, "launch", launch_in_processes)
    name, LAUNCHER.__name__ = LAUNCHER.__name__, "OtherLauncher"
    yield
    LAUNCHER.__name__ = name


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_failures_and_values_of_other_processes_are_listed(
    other_launcher, monkeypatch, capfd, tmp_path
):
    def job(cfg):
        if cfg.seed != 1:
            raise UserError(f"seed: {cfg.seed} fails")
        return 0.5, sweep_name(hydra_command.typed_overrides())

    values = []
    words = ["-m", f"hydra.sweep.dir={tmp_path}", "optim.lr=0.1", "seed=0,1,2"]
    monkeypatch.setattr("sys.argv", ["train.py"])
    run = report_errors(hydra_command.run_command)
    assert run(words, job, "train", describe=str, conclude=values.extend) == 1
    assert values == ["seed=1"]  # the name of a run among parallel ones
    assert len(started) == 3
    _, err = capfd.readouterr()
    assert err.count("error: seed: ") == 2
    last = err.partition("2 of 3 runs failed")[2].splitlines()[1:]
    assert [line.split(": ")[0].strip() for line in last] == ["seed=0", "seed=2"]


@pytest.mark.promise(
    "guides/sweep.md",
    "a launcher loses a process: the command ends with one line",
)
def test_a_lost_process_is_one_line(monkeypatch, other_launcher, command_line, tmp_path):
    def lose(launcher, job_overrides, initial_job_idx):
        raise RuntimeError("job 7 has no output\nsee the log")

    monkeypatch.setattr(LAUNCHER, "launch", lose)
    status, _, err = command_line("-m", f"hydra.sweep.dir={tmp_path}", "seed=0,1")
    assert status == 1
    (line,) = err.splitlines()
    assert line.startswith("error: hydra/launcher: job 7 has no output")


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "there is no Slurm on this machine: one line says so",
)
def test_slurm_is_asked_for_where_there_is_none(monkeypatch, command_line, tmp_path):
    launcher = type("SlurmLauncher", (LAUNCHER,), {})
    monkeypatch.setattr(Plugins, "instantiate_launcher", lambda *_, **__: launcher())
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _, err = command_line("-m", f"hydra.sweep.dir={tmp_path}", "seed=0,1")
    assert status == 2
    (line,) = err.splitlines()
    assert re.match(r"error: hydra/launcher: .*Slurm", line)


@pytest.mark.parametrize("dies", [False, True], ids=["ends", "is-killed"])
@pytest.mark.promise(
    "guides/sweep.md",
    "another process trains a run of the sweep: it is looked at again at the end, and trained if "
    "it was left",
)
def test_a_run_of_another_process_is_looked_at_again(
    command_line, prepared, tmp_path, monkeypatch, dies
):
    """It trains the run to its end, or leaves it: no run is missing then."""
    monkeypatch.setattr(hydra_command, "POLL_SECONDS", 0.1)
    cfg, folder = prepared("seed=0", "protocol.epochs=1")
    locked = context().Event()

    def hold():  # until the other run is finished
        with folder.locked():
            locked.set()
            while not list(folder.path.parent.glob("seed1-*/summary.json")):
                time.sleep(0.1)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
        start(cfg)

    owner = context().Process(target=hold)
    owner.start()
    try:
        assert locked.wait(30)
        words = (*DIGITS, "protocol.epochs=1", "seed=0,1", f"outputs={tmp_path / 'outputs'}")
        status, out, err = command_line("-m", f"hydra.sweep.dir={tmp_path}/sweep", *words)
    finally:
        owner.join(60)
    assert status == 0, err
    assert f"note: process {owner.pid} on " in out
    assert "waiting for runs of other processes: 1" in out
    assert len(list(folder.path.parent.glob("seed*/summary.json"))) == 2
