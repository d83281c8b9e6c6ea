"""Commands with the launchers of Hydra's plugins, where these are installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.runs.small_runs import SMALL, essence
from tests.system.finished_runs import only_run_folder

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]


@pytest.fixture
def launch(tmp_path):
    """Starts `train.py` with a launcher; its jobs write their logs below `sweep`."""

    def start(launcher, *words, name="sweep"):
        pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
        command = [sys.executable, ROOT / "train.py", "-m", f"hydra/launcher={launcher}", *words]
        command += [f"outputs={tmp_path / 'launched'}", f"hydra.sweep.dir={tmp_path / name}"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)

    return start


def printed(process):
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return out


def test_joblib_trains_two_runs_at_a_time(launch):
    words = (*TINY, "loss=contrastive,ms", "hydra.launcher.n_jobs=2")
    out = printed(launch("joblib", *words))
    for loss in ("contrastive", "ms"):
        assert f"loss={loss}  epoch 2 of 2  loss" in out
    assert "2 runs, best first" in out
    assert re.search(r"^curves +/.*curves\.png$", out, re.MULTILINE)


def test_tasks_of_a_submitit_job_train_one_model(launch, run_tiny, tmp_path):
    words = ("loss=contrastive", "embedder.freeze_batch_norm=true")
    alone = run_tiny(*words)[0]["metrics"]["map_at_r"]
    printed(launch("submitit_local", *TINY, *words, "hydra.launcher.tasks_per_node=2"))
    together = essence(only_run_folder(tmp_path / "launched").path)[1]["map_at_r"]
    assert together == pytest.approx(alone, abs=5e-3)
    assert len(list(tmp_path.glob("sweep/.submitit/*/*_log.out"))) == 2


def test_submitit_jobs_of_one_run_share_its_folds(launch, run_small, glyphs_root, tmp_path):
    alone = essence(run_small("loss=contrastive"))
    words = ("submitit_local", *SMALL, "loss=contrastive", f"data.root={glyphs_root}")
    for job in [launch(*words, name=f"sweep{number}") for number in (1, 2)]:
        printed(job)
    assert essence(only_run_folder(tmp_path / "launched").path) == alone
    logs = "".join(log.read_text() for log in tmp_path.glob("sweep*/.submitit/*/*_log.out"))
    for fold in range(4):
        assert logs.count(f"repeat0-fold{fold}  epoch 1 of 1") == 1
