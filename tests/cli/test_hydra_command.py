import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from dml.cli.hydra_command import run_command, typed_overrides
from dml.core.errors import UserError
from dml.core.exit_status import ExitStatus
from tests.conftest import TINY

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("words", "status", "name", "remedy"),
    [
        (["data=glyphs", "seed=["], 2, "seed=[", "quote special characters"),
        (["data=cub"], 1, "data.root", "run: dml prepare cub"),
    ],
)
def test_a_mistake_in_a_sweep_is_one_line(command_line, tmp_path, words, status, name, remedy):
    """`tests/config/test_explain.py` has those of single runs."""
    places = [f"outputs={tmp_path}", f"data.root={tmp_path}/data"]
    found, _, err = command_line("-m", f"hydra.sweep.dir={tmp_path}/sweep", *places, *words)
    assert found == status
    (line,) = err.strip().splitlines()
    assert line.startswith(f"error: {name}")
    assert remedy in line
    assert not list(tmp_path.glob("single"))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["resume=/no/such"], "resume: '/no/such' is not a run folder"),
        (["-m", "--cfg", "job"], "Only one of --run, --multirun, --cfg"),
    ],
)
def test_words_that_exclude_each_other(command_line, tmp_path, words, problem):
    status, _, err = command_line(*(word.format(tmp_path) for word in words))
    assert status == 2
    assert err.startswith(f"error: {problem}")


@pytest.mark.promise(
    "guides/sweep.md",
    "a run of a sweep fails: the others run, and failures are listed at the end",
)
def test_a_failed_job_does_not_stop_the_others(command_line, tmp_path):
    status, out, err = command_line(
        "-m",
        f"hydra.sweep.dir={tmp_path}/sweep",
        f"outputs={tmp_path}",
        *TINY,
        "data.batch_size=0,450",
    )
    assert status != 0
    assert "1 of 2 runs failed:" in err
    assert "  data.batch_size=0: data.batch_size: 0 must" in err  # what is shared is left out
    assert out.count("run folder") == 1
    assert len(list(tmp_path.rglob("summary.json"))) == 1


def test_a_failed_job_keeps_no_memory(tmp_path, monkeypatch):
    """Of its networks, of which the next job needs the room."""
    kept, alive = [], []

    class Network:
        pass

    def fail(cfg):
        alive.extend(network() is not None for network in kept)
        network = Network()
        network.itself = network
        kept.append(weakref.ref(network))
        try:
            raise ValueError("the cause has frames, too")
        except ValueError as error:
            raise UserError("data: none") from error

    words = ["-m", f"hydra.sweep.dir={tmp_path}", "seed=1,2,3"]
    monkeypatch.setattr(sys, "argv", ["train.py"])
    gc.disable()
    try:
        assert run_command(words, fail, "train", lambda: "") == ExitStatus.FAILED
    finally:
        gc.enable()
    assert alive == [False] * 3


def test_the_time_limit_counts_for_all_runs_of_a_command(command_line, tmp_path, monkeypatch):
    from dml.runs import experiment

    starts, run = [], experiment.run

    def note(*args, started, **options):
        starts.append(started)
        return run(*args, started=started, **options)

    monkeypatch.setattr(experiment, "run", note)
    sweep = ["-m", f"hydra.sweep.dir={tmp_path}/sweep", f"outputs={tmp_path}", *TINY]
    for words in ([*sweep, "seed=0,1"], [*sweep, "seed=2,3"], [f"outputs={tmp_path}", *TINY]):
        assert command_line(*words)[0] == 0
    first, second, third, fourth, alone = starts
    assert first == second < third == fourth < alone


def test_a_command_that_is_out_of_time_begins_no_other_run(command_line, tmp_path):
    words = ["-m", f"hydra.sweep.dir={tmp_path}/sweep", f"outputs={tmp_path}", *TINY]
    status, out, _ = command_line(*words, "seed=0,1,2", "max_minutes=1e-9")
    assert status == ExitStatus.TIME_LIMIT
    assert out.count("epoch 0 of 2") == 1


@pytest.mark.parametrize("seeds", ["4", "4,5"])
@pytest.mark.parametrize("trust", [[], ["trust=true"]])
def test_a_job_knows_what_its_command_sets(tmp_path, monkeypatch, seeds, trust):
    """Also what Hydra has not seen: it is stored with the run."""
    (tmp_path / "best.yaml").write_text("optim.lr: 0.25\n")
    seen = {}

    def note(cfg):
        assert cfg.optim.lr == 0.25
        seen[cfg.seed] = {*typed_overrides()}
        return 0.5, None

    monkeypatch.setattr(sys, "argv", ["train.py"])
    params, sweep = f"params={tmp_path}/best.yaml", []
    if "," in seeds:
        sweep = ["-m", f"hydra.sweep.dir={tmp_path}"]
    words = [*sweep, params, "loss=ms", f"seed={seeds}", *trust]
    assert run_command(words, note, "train", lambda: "") == ExitStatus.FINISHED
    values = params if sweep else "optim.lr=0.25"  # those of a sweep differ from job to job
    for seed in map(int, seeds.split(",")):
        assert seen[seed] == {"loss=ms", f"seed={seed}", values, *trust}


def test_jobs_that_fail_for_the_same_reason_are_listed_together(command_line, tmp_path):
    status, _, err = command_line(
        "-m",
        f"hydra.sweep.dir={tmp_path}/sweep",
        f"data.root={tmp_path}",
        "data=cub",
        "loss=mfcwms,contrastive",
    )
    assert status == ExitStatus.FAILED
    head, *reasons = err.partition("2 of 2 runs failed:")[2].splitlines()
    assert head == ""
    (line,) = reasons
    names = "loss=mfcwms; loss=contrastive"
    assert line.startswith(f"  {names}: data.root: ")


def test_hydra_writes_nothing_by_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])
    seen = []
    status = run_command([], lambda cfg: (None, seen.append(cfg)), "train", describe=str)
    assert status == ExitStatus.FINISHED
    assert len(seen) == 1
    assert list(tmp_path.iterdir()) == []


def test_commands_do_not_wait_for_torch(tmp_path):
    """One process runs all; what is imported late costs most of a second, or several."""
    statuses = {
        "train --help": 0,
        "train --cfg job": 0,
        "train loss=mfcwm": 2,
        "train data=cub data.root=nowhere": 1,
        "train resume=nowhere": 2,
        "evaluate run=nowhere": 2,
        "evaluate data=cub data.root=nowhere": 1,
        "evaluate embeddings=nowhere.npz": 1,
        "search nowhere.npz 0": 1,
        "embed nowhere photos x.npz": 2,
        "export nowhere network": 2,
        "prepare --help": 0,
        "runs --runs .": 0,
        "plan mft_table2": 0,
        "report mft_table2 --runs .": 0,
        "prepare cub --check": 1,
        "train data=folder data.root=nowhere": 1,  # may be a CSV file
        "evaluate data=folder data.root=nowhere": 1,
    }
    code = f"""
import sys
from dml.cli.program import main
late = ["pandas", "torch", "torch._dynamo", "torchvision", "timm", "matplotlib"]
for line in {[*statuses]}:
    sys.argv = ["dml", *line.split()]
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    print("\\nend:", line, int(status), [name for name in late if name in sys.modules])
import dml.losses
print("end: losses", [name for name in late if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    ends = [line for line in done.stdout.splitlines() if line.startswith("end: ")]
    without_tables = [*statuses][: [*statuses].index("runs --runs .")]
    loaded = [[] if line in without_tables else ["pandas"] for line in statuses]
    assert ends[:-1] == [
        f"end: {line} {status} {names}"
        for (line, status), names in zip(statuses.items(), loaded, strict=True)
    ]
    assert ends[-1] == "end: losses ['pandas', 'torch']"
    help_, config = done.stdout.split("\nend: ")[:2]
    assert "loss: " in help_
    assert "mfcwms" in help_
    assert "space: " not in help_
    assert "alpha: 0.01" in config


@pytest.mark.parametrize("words", [["hydra.sweeper.grids=['data=digits sed=1,2']"], ["sed=1,2"]])
def test_a_misspelled_option_of_a_grid(command_line, words):
    status, _, err = command_line("-m", *words)
    assert status == 2
    assert err == "error: sed: no such option; did you mean 'seed'?\n"
