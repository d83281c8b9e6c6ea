import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.data.image_dataset import ImageDataset
from dml.data.image_index import ImageIndex
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs import throughput
from dml.runs.jobs.throughput import LoaderHint, find_remedy, speed_note
from dml.tracking import History
from dml.training.clock import TimeSpent
from tests.conftest import TINY
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import start


@pytest.fixture
def prepared(composed, tmp_path):
    def prepare(*overrides):
        cfg = composed(f"outputs={tmp_path}", *TINY, "protocol.epochs=3", *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def steps_of(folder):
    return [row["step"] for row in History(folder.throughput).job_rows(0, 0)]


def test_a_killed_run_has_a_row_for_every_interval(prepared):
    cfg, folder = prepared()
    assert die_at("before_rename:9", start, cfg) == KILLED  # a row that no checkpoint knows
    summary = start(cfg)
    rows = History(folder.throughput).job_rows(0, 0)
    assert [row["step"] for row in rows] == [7, 14, 21]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["images_per_second"] > 0
        assert 0 < row["waiting_share"] < 1
        assert row["peak_memory_mb"] > 50
    assert 0 < summary["waiting_share"] < 1
    assert summary["jobs"][0]["seconds"] > 0
    cfg.overwrite = True
    start(cfg)
    assert steps_of(folder) == [7, 14, 21]


def test_the_time_before_a_stop_is_kept(prepared):
    cfg, folder = prepared("max_minutes=1e-9")
    with pytest.raises(RunStopped):
        start(cfg)
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    steps, seconds, waiting = state["clock"]["interval"]
    assert steps == state["step"] == 1
    assert 0 < waiting < seconds


def test_a_lost_table_does_not_stop_a_run(prepared, capsys):
    cfg, folder = prepared()
    assert die_at("before_step:17", start, cfg) == KILLED
    folder.throughput.unlink()
    start(cfg)
    assert steps_of(folder) == [21]


def test_a_slow_loader_is_reported_once_with_a_remedy(prepared, monkeypatch, capsys):
    monkeypatch.setattr(throughput, "WAITING_SECONDS", 0.02)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(5))
    cfg, _ = prepared()
    items = ImageDataset.__getitems__

    def slow_items(self, keys):
        time.sleep(0.05)
        return items(self, keys)

    monkeypatch.setattr(ImageDataset, "__getitems__", slow_items)
    start(cfg)
    out = capsys.readouterr().out
    assert out.count("note: data: training waited for images") == 1
    assert "data.workers=5 loads by as many processes (0 now)" in out


@pytest.mark.parametrize(
    ("spent", "reported"),
    [
        (TimeSpent(9, 60.0, 19.9), False),
        (TimeSpent(9, 70.0, 20.0), False),
        (TimeSpent(9, 60.0, 20.0), True),
    ],
)
def test_short_waits_are_not_reported(composed, spent, reported):
    lines: list[str] = []
    index = SimpleNamespace(images=[])
    hint = LoaderHint(check(composed(), Config), index, torch.device("cpu"), lines.append)
    hint.check(spent)
    hint.check(spent)
    assert len(lines) == reported
    if reported:
        assert "20 of 60 s (33 %)" in lines[0]


@pytest.mark.parametrize(
    ("overrides", "in_memory", "device", "expected"),
    [
        ([], False, "cpu", "data.workers=4"),
        (["data.workers=4"], False, "cpu", "data.cache=full"),
        ([], False, "cuda", "data.cache=full"),  # workers are chosen
        (
            ["data.workers=4", "transform.resize=256", "transform.test_resize=256"],
            False,
            "cuda",
            "data.cache=256",
        ),
        (
            ["data.workers=4", "transform.resize=256", "transform.test_resize=null"],
            False,
            "cuda",
            "data.cache=full",  # testing sees whole images
        ),
        (["data.workers=4", "data.cache=full"], False, "cpu", None),
        (["data.workers=4", "data.cache=full"], False, "cuda", None),
        (["data.workers=4"], True, "cpu", None),
        (["data.workers=4"], True, "cuda", None),
        (["protocol=mlrc", "protocol.workers=3"], False, "cpu", "data.workers=1"),
    ],
)
def test_remedies(composed, monkeypatch, overrides, in_memory, device, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(4))
    config = check(composed(*overrides), Config)
    images = np.zeros((1, 8, 8, 3), np.uint8) if in_memory else [Path("1.jpg")]
    index = ImageIndex("x", images, np.zeros(1, int), np.full(1, "train"))
    found = find_remedy(config, index, torch.device(device))
    assert found is None if expected is None else found.startswith(f"{expected} "), found


FAST = ("precision=tf32", "precision=bf16", "channels_last=true", "data.cache=full")


@pytest.mark.parametrize("option", [*FAST, "compile=true", "compile=reduce-overhead"])
def test_fast_options_are_named_on_a_gpu_unless_one_is_set(composed, option):
    cuda = torch.device("cuda")
    photos = ("data=cub", "backbone=small_cnn", "transform.size=32")
    plain, chosen = (check(composed(*photos, *more), Config) for more in ((), (option,)))
    note = speed_note(plain, cuda)
    assert note is not None
    assert option.partition("=")[0] in note
    assert speed_note(chosen, cuda) is speed_note(plain, torch.device("cpu")) is None
    assert speed_note(check(composed("data=glyphs"), Config), cuda) is None
