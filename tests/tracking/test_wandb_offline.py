"""W&B itself, without network or account: what it was given is read back from its files."""

import multiprocessing
import os
from pathlib import Path

import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import UserError
from dml.runs.experiment import run
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, JobTracker, RunInfo, tracked
from dml.tracking.weights_and_biases import WandbTracker
from tests.conftest import TINY
from tests.killed_process import die_at
from tests.tracking.lost_service import lose_the_service
from tests.tracking.wandb_file import written

pytest.importorskip("wandb", reason="wandb is an extra")


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "no-settings"))


def start(cfg):
    return run(cfg, check(cfg, Config))


@pytest.mark.pictures
def test_a_killed_run_is_whole_after_it_was_continued(composed, tmp_path):
    places = (f"outputs={tmp_path}", "tracking=wandb", "tracking.mode=offline")
    cfg = composed(*TINY, *places, "tracking.project=mine", "experiment.id=mft_table1")
    folder = RunFolder.of(cfg, check(cfg, Config))
    assert die_at("between_checkpoints:3", start, cfg) != 0  # the third row is not in a checkpoint
    summary = start(cfg)
    found = written(folder.path, folder.run_id())
    assert list(found) == [folder.run_id()]
    (file,) = found.values()
    assert file.run.project == "mine"
    assert file.run.run_group == "mft_table1"
    assert file.run.job_type == "repeat0-fold0"
    assert list(file.run.tags) == ["digits", "traditional", "stand-in"]
    assert file.config["loss"]["name"] == "mfcwms"
    assert file.config["run"]["result_id"] == "mf_cwms"
    assert file.metrics["*"] == "epoch"
    *rows, pictures = file.history
    assert [row["_step"] for row in rows] == [0, 7, 14]
    assert [row["epoch"] for row in rows] == [0, 1, 2]
    logged = History(folder.history).of(0, 0)
    for name in ("map_at_r", "recall_at_1", "r_precision"):
        assert [row[name] for row in rows] == [row[name] for row in logged]
    for name in ("learning_curve", "neighbors"):
        picture = file.folder / "files" / pictures[f"figures/{name}.path"]
        assert picture.read_bytes() == (folder.figures / f"{name}.png").read_bytes()
    assert file.summary["test/map_at_r"] == summary["metrics"]["map_at_r"]["mean"]
    assert file.summary["untrained/map_at_r"] == summary["untrained"]["map_at_r"]["mean"]
    assert file.exit_code == 0


def fail_in_the_second_fold(folder: Path) -> None:
    """Two models side by side; the second is still open when the run fails."""
    tracker = WandbTracker(project="p", mode="offline")
    info = RunInfo(folder, "abc", "cub seed0", "mlrc", {"seed": 0}, [(0, 0), (0, 1)])
    history = History(folder / "history.csv")
    with tracked(tracker, info):
        for step in (0, 5):
            for fold in (0, 1):
                rows = JobTracker(history, tracker, 0, fold, lambda metrics: None)
                rows.log({"epoch": step / 5, "map_at_r": step / 100}, step)
        tracker.job_done({"repeat": 0, "fold": 0, "metrics": {"map_at_r": 0.5}})
        raise UserError("no more")


def test_folds_side_by_side_and_a_failure(tmp_path):
    with pytest.raises(UserError, match="no more"):
        fail_in_the_second_fold(tmp_path)
    ids = ["abc-repeat0-fold0", "abc-repeat0-fold1"]
    found = written(tmp_path, *ids)
    assert list(found) == ids
    assert [file.exit_code for file in found.values()] == [0, 1]
    for file in found.values():
        assert [row["_step"] for row in file.history] == [0, 5]
        assert file.run.run_group == "mlrc"
    assert found["abc-repeat0-fold0"].summary["test/map_at_r"] == 0.5


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the service in /proc")
def test_the_service_s_death_is_survived_and_the_next_run_has_a_new_one(tmp_path):
    work = multiprocessing.get_context("spawn").Process(
        target=lose_the_service, args=(tmp_path, tmp_path / "said.txt")
    )
    work.start()
    work.join(300)
    assert work.exitcode == 0
    said = (tmp_path / "said.txt").read_text()
    assert said.count("W&B does not answer") == 1
    second = written(tmp_path, "second")["second"]
    assert [row["_step"] for row in second.history] == [0, 5]
    assert second.exit_code == 0


def test_without_a_key_nobody_is_asked(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *prompt: pytest.fail("asked"))
    with pytest.raises(UserError, match=r"tracking\.mode: online needs a key") as error:
        WandbTracker()
    assert "\n" not in str(error.value)


def test_a_wrong_setting_is_one_line():
    with pytest.raises(UserError, match=r"tracking\.settings: .*nonsense") as error:
        WandbTracker(mode="offline", settings={"nonsense": 1})
    assert "\n" not in str(error.value)
