"""Run folders in every state, read back as they were written or with the reason why not."""

import json

import pytest
import yaml
from omegaconf import OmegaConf

from dml.core.locks import try_lock
from dml.runs.folder.stored_run import State, find_runs, read_config, read_run
from tests.stored_runs import write_stored_run


def test_a_finished_run(tmp_path):
    folder = write_stored_run(tmp_path, 0.44, loss="triplet", seed=3, name=2024)
    (folder.parent / "exported").mkdir()
    for name in ("config.yaml", "exported/config.yaml", "exported/model.safetensors"):
        (folder.parent / name).write_text("a: 1")  # of other programs, or of dml.export
    for root in (tmp_path, folder.parents[1], folder.parent, folder):
        assert find_runs(root) == [folder]
    run = read_run(folder)
    assert (run.state, run.problem, run.id) == (State.FINISHED, "", folder.name[-8:])
    config, (job,) = run.config, run.summary.jobs
    names = (config.name, config.seed, config.experiment, config.loss, config.epochs)
    assert names == ("2024", 3, "single", "triplet", 10)
    assert job.metrics == {"map_at_r": 0.44, "precision_at_1": 0.64}
    assert run.options["optim.lr"] == 0.001
    assert "data.root" not in run.options  # does not decide the result
    assert run.size == sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    assert [row["map_at_r"] for row in run.history] == [0.1, 0.2]


def test_a_config_has_the_values_that_yaml_means(composed, tmp_path):
    path = tmp_path / "config.yaml"
    text = OmegaConf.to_yaml(composed("loss=ms", "protocol=mlrc"), resolve=True)
    path.write_text(text + "texts: ['1e-3', 'null', yes it is, \"\\u00e4\"]\nblock: |\n  a\n  b\n")
    assert read_config(path) == yaml.safe_load(path.read_text())


def test_unfinished_runs(tmp_path):
    folder = write_stored_run(tmp_path, None)
    run = read_run(folder)
    assert (run.state, len(run.history)) == (State.STOPPED, 2)
    log = folder / "train.log"
    log.write_text("2026 [7] command: train.py\n2026 [7] error: data.root: no such folder\n")
    run = read_run(folder)
    assert (run.state, run.problem) == (State.FAILED, "data.root: no such folder")
    log.write_text(log.read_text() + "2026 [8] command: train.py\n")
    assert read_run(folder).state == State.STOPPED
    (folder / "history.csv").unlink()
    assert read_run(folder).state == State.EMPTY
    (folder / "config.yaml").unlink()
    (folder / "run.lock").touch()
    assert read_run(folder).state == State.EMPTY  # it has not written its config yet


@pytest.mark.promise(
    "runs.md",
    "the runs of a colleague are listed: `train.log` is readable for its owner alone, so that a "
    "run of theirs that failed is `stopped`",
)
def test_a_log_that_only_its_owner_reads(tmp_path, monkeypatch):
    folder = write_stored_run(tmp_path, None)
    (folder / "train.log").write_text("2026 [7] error: data.root: no such folder\n")
    assert read_run(folder).state == State.FAILED

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("dml.runs.folder.stored_run.open_regular", refuse)
    run = read_run(folder)
    assert (run.state, run.problem, len(run.history)) == (State.STOPPED, "", 2)


@pytest.mark.parametrize(
    ("lock", "state"),
    [
        ("run.lock", State.RUNNING),
        ("checkpoints/repeat0-fold0/run.lock", State.RUNNING),
        ("search/trials/0003/run.lock", State.SEARCHING),
    ],
)
@pytest.mark.promise(
    "runs.md", "a process works in a folder, of this user or another: the run is listed as running"
)
def test_a_run_at_work_holds_its_lock(tmp_path, lock, state):
    folder = write_stored_run(tmp_path / "search" / "outputs", None)
    with try_lock(folder / lock):
        assert read_run(folder).state == state
    (folder / lock).write_text("process 1 on a machine that was switched off\n")
    assert read_run(folder).state == State.STOPPED


BOMB = "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("summary.json", "{", "summary.json is damaged: "),
        ("summary.json", "[" * 100_000, "summary.json is damaged: "),
        ("summary.json", "[1]", "summary.json is not of a run: "),
        ("summary.json", '{"metrics": {}}', "summary.json is not of a run: result_id: "),
        ("summary.json", {"jobs": []}, "not of a run: jobs: "),
        ("summary.json", {"jobs": 3}, "not of a run: jobs: "),
        ("summary.json", {"jobs": [{"metrics": {}}]}, "not of a run: jobs.0.repeat: "),
        ("summary.json", {"embedding_size": None}, "not of a run: embedding_size: "),
        ("summary.json", {"metrics": {"map_at_r": 0.5}}, "not of a run: metrics.map_at_r: "),
        *(
            ("summary.json", {"jobs": [{"repeat": 0, "metrics": {"map_at_r": score}}]}, problem)
            for score, problem in (
                (float("nan"), "jobs.0.metrics.map_at_r: Input should be a finite number"),
                ("good", "jobs.0.metrics.map_at_r: "),
            )
        ),
        ("config.yaml", "", "config.yaml is damaged: not a table of options"),
        ("config.yaml", "a: [", "config.yaml is damaged: "),
        ("config.yaml", "\x00", "config.yaml is damaged: "),
        ("config.yaml", "- 1", "config.yaml is damaged: not a table of options"),
        ("config.yaml", "? [1]\n: 2", "config.yaml is damaged: "),
        ("config.yaml", "a: {b: ['${oc.env:HOME}']}", "config.yaml is damaged: a.b holds ${"),
        ("config.yaml", BOMB, "config.yaml is damaged: line 2 has no plain value"),
        ("config.yaml", "a: !!python/name:os.system x", "could not determine a constructor"),
        ("config.yaml", "a: " + "[" * 100_000, "config.yaml is damaged"),
        ("config.yaml", "\n" + "? " * 100_000, "line 2 has no plain value"),
        ("config.yaml", "a: ${b}".encode("utf-16"), "config.yaml is damaged: a holds ${"),
        ("config.yaml", {"seed": 2**64}, "config is not of a run: seed: "),
        ("summary.json", {"embedding_size": 10**400}, "not of a run: embedding_size: "),
        ("config.yaml", "a: 1", "config is not of a run: seed: Field required"),
        ("config.yaml", {"loss": {"name": ["ms"]}}, "config is not of a run: loss.name: "),
        ("config.yaml", {"data": None}, "config is not of a run: data.name: "),
        ("config.yaml", {"seed": None}, "config is not of a run: seed: "),
    ],
)
@pytest.mark.promise(
    "runs.md",
    "a file of a run folder is damaged: the run is listed as damaged, with the file, and hides no "
    "other",
)
def test_damaged_folders(tmp_path, file, content, problem):
    folder = write_stored_run(tmp_path, None if file == "config.yaml" else 0.5)
    path = folder / file
    if isinstance(content, dict):
        content = json.dumps({**yaml.safe_load(path.read_text()), **content})
    path.unlink() if content is None else path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    run = read_run(folder)
    assert run.state == State.DAMAGED
    assert problem in run.problem
    assert "\n" not in run.problem


def test_a_folder_instead_of_a_file_is_damaged(tmp_path):
    folder = write_stored_run(tmp_path, None)
    (folder / "summary.json").mkdir()
    assert read_run(folder).state == State.DAMAGED
    (folder / "summary.json").rmdir()
    (folder / "history.csv").write_text("repeat,map_at_r\n0,much\n")
    run = read_run(folder)
    assert (run.state, run.history) == (State.DAMAGED, [])
    assert "history.csv is damaged (" in run.problem
