import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dml.errors import UserError
from tests.search.small import SMALL, essence

ROOT = Path(__file__).resolve().parent.parent


def test_models_side_by_side_equal_models_in_turn(run_small):
    alone = run_small("loss=contrastive", name="alone")
    both = run_small("loss=contrastive", "protocol.workers=2", name="both")
    assert essence(both) == essence(alone)
    logs = sorted(path.name for path in (both / "logs").iterdir())
    assert logs == [f"repeat0-fold{fold}.log" for fold in range(4)]
    assert "epoch 1" in (both / "logs" / "repeat0-fold2.log").read_text()


def test_stopped_side_by_side_and_continued_in_turn(run_small, tmp_path, glyphs_root):
    alone = run_small("loss=contrastive", "protocol.epochs=8", name="alone")
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "loss=contrastive"]
    command += [f"outputs={tmp_path / 'both'}", f"data.root={glyphs_root}"]
    command += ["protocol.epochs=8", "protocol.workers=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "both").rglob("last.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (143, 0)  # 0: it was done already
    both = run_small("loss=contrastive", "protocol.epochs=8", name="both")
    assert essence(both) == essence(alone)


def test_a_process_that_fails_is_told(run_small, tmp_path):
    with pytest.raises(UserError, match="data"):
        run_small(
            "loss=contrastive",
            "data.images_per_class=3",
            "data.sampler=balanced",
            "data.batch_size=300",
            "protocol.workers=2",
        )
