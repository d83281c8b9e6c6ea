"""The scripts of docs/guides/job_scripts.md, with stand-ins for the programs of a cluster."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from dml.config.check import check
from dml.config.presets import apply_params, split_params

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "job_scripts.md"
SCRIPTS = dict(
    re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```bash\n(.*?)```", PAGE.read_text(), re.M | re.S)
)
JOBS = [title for title, script in SCRIPTS.items() if "#SBATCH" in script]
PROGRAMS = {
    "srun": 'echo "cores $SRUN_CPUS_PER_TASK" >> calls; echo "srun $*" >> calls; exit $STATUS',
    "scontrol": 'echo "scontrol $*" >> calls; echo node1; echo node2',
    "dml": 'echo "dml $*" >> calls',
}


@pytest.fixture
def run_script(tmp_path):
    """Runs a script in a folder with the stand-ins; returns its status, and the calls of them."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    for name, script in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)

    def run(title, status):
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "STATUS": str(status),
            "SLURM_JOB_ID": "17",
            "SLURM_CPUS_PER_TASK": "8",
            "SLURM_JOB_NODELIST": "node[1-2]",
        }
        done = subprocess.run(
            ["bash", "-u", "-c", SCRIPTS[title]], cwd=tmp_path, env=environment, timeout=60
        )
        return done.returncode, (tmp_path / "calls").read_text().splitlines()

    return run


def test_scripts_are_found():
    assert len(JOBS) == 5
    assert "Other schedulers" in SCRIPTS


@pytest.mark.parametrize("title", JOBS)
@pytest.mark.parametrize("status", [0, 1, 2, 75, 130, 143])
def test_a_run_that_was_stopped_is_queued_again(title, status, run_script):
    ended, calls = run_script(title, status)
    assert ended == status
    assert ("scontrol requeue 17" in calls) == (status in (75, 143))


@pytest.mark.parametrize("title", JOBS)
def test_srun_gets_the_cores_of_the_job(title, run_script):
    """Since Slurm 22.05 it does not inherit them."""
    assert "cores 8" in run_script(title, 0)[1]


def test_processes_of_two_nodes_meet_on_the_first(run_script):
    _, calls = run_script("One model on two nodes", 0)
    assert "scontrol show hostnames node[1-2]" in calls
    assert "--rdzv-id=17 --rdzv-endpoint=node1:29500 train data=sop" in calls[-1]


@pytest.mark.parametrize("title", JOBS)
def test_limits_leave_time_to_save(title):
    """The run stops ten minutes before its job, and signals reach the steps of the job."""
    hours = int(re.search(r"--time=(\d+):00:00", SCRIPTS[title])[1])
    assert f"max_minutes={60 * hours - 10} " in SCRIPTS[title]
    assert "#SBATCH --signal=TERM@120\n" in SCRIPTS[title]


@pytest.mark.parametrize("title", JOBS)
def test_training_commands_are_valid(title, run_script, composed):
    calls = run_script(title, 0)[1]
    (call,) = [call for call in calls if call.startswith("srun ")]
    words = shlex.split(call)
    start = words.index("train" if "train" in words else "train.py")
    options = words[start + 1 :]
    params, others = split_params(options)
    check(apply_params(composed(*others), params, others))


def test_a_missing_file_ends_the_job_before_its_run(run_script, tmp_path):
    (tmp_path / "bin" / "dml").write_text("#!/bin/bash\necho $* >> calls\nexit 1\n")
    status, calls = run_script("Nodes without internet", 0)
    assert status == 1
    assert len(calls) == 1
    assert calls[0].endswith("--check")


def test_a_loop_ends_with_the_run(run_script, tmp_path):
    """The stand-in of `dml` is stopped twice, and then finished."""
    (tmp_path / "bin" / "dml").write_text(
        "#!/bin/bash\necho dml >> calls\ncase $(wc -l < calls) in 1) exit 75;; 2) exit 143;; esac\n"
    )
    assert run_script("Other schedulers", 0) == (0, ["dml"] * 3)
