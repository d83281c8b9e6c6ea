"""Runs on tar shards that are killed, or whose shards change: equal results, or one line."""

import os
import signal
import tarfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dml.config.check import check
from dml.core.errors import UserError
from dml.data.preparation import image_check
from dml.data.readers import packed_listing
from dml.runs.folder.run_folder import RunFolder
from tests.conftest import compose_config
from tests.forked import context
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import results_of, start

OPTIONS = (
    *("data=folder", "protocol=traditional", "backbone=small_cnn", "backbone.width=4"),
    *("embedder.size=8", "embedder.pooling=avg", "embedder.init=default", "transform.size=8"),
    *("device=cpu", "loss=ms", "data.batch_size=8", "protocol.epochs=2"),
)


def write_shard(path: Path, first: int, count: int) -> None:
    with tarfile.open(path, "w") as archive:
        for number in range(first, first + count):
            file = BytesIO()
            pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(file, "PNG")
            members = (".png", file.getvalue()), (".cls", str(number // 6).encode())
            for ending, data in members:
                member = tarfile.TarInfo(f"{number:03d}{ending}")
                member.size = len(data)
                archive.addfile(member, BytesIO(data))


@pytest.fixture
def shards(tmp_path, monkeypatch):
    """Returns the config and the folder of a run on shards, whose lists are always stored."""
    monkeypatch.setattr(packed_listing, "FEW", 0)

    folder = tmp_path / "photos"
    folder.mkdir()
    for shard in range(3):
        write_shard(folder / f"s-{shard}.tar", 16 * shard, 16)

    def prepare(name):
        root = f"data.root={folder}/s-*.tar"
        cfg = compose_config(f"outputs={tmp_path / name}", root, *OPTIONS)
        return cfg, RunFolder.of(check(cfg))

    return prepare


def undisturbed(shards):
    """The results of a run that nothing disturbs, on the same shards."""
    cfg, folder = shards("calm")
    start(cfg)
    return results_of(folder)


POINTS = ["after_step:4", "before_rename:1", "before_rename:2", "before_rename:4"]


@pytest.mark.promise(
    "guides/how_it_grows.md",
    "a run or its first start is killed while shards are listed, while they are checked or in the "
    "training: the same command continues, and the result is equal",
)
@pytest.mark.parametrize("point", POINTS)
def test_killed_and_continued(shards, point):
    """While shards are listed and checked (the first files), and while it trains."""
    cfg, folder = shards("killed")
    assert die_at(point, start, cfg) == KILLED
    start(cfg)
    assert results_of(folder) == undisturbed(shards)


def test_sigterm_in_the_check_leaves_what_is_checked(shards, monkeypatch):
    cfg, folder = shards("stopped")
    check_image = image_check.check_image
    checked = []

    def check_slowly(image, **options):
        time.sleep(0.02)
        checked.append(image)
        return check_image(image, **options)

    def run():
        def stop_in_the_middle(image, **options):
            if len(checked) == 40:
                os.kill(os.getpid(), signal.SIGTERM)
            return check_slowly(image, **options)

        monkeypatch.setattr(image_check, "check_image", stop_in_the_middle)
        start(cfg)

    process = context().Process(target=run)
    process.start()
    process.join()
    assert process.exitcode not in (0, None)
    (stored,) = Path(cfg.data.root).parent.glob(".cache/checked-*.npz")
    known = int((np.load(stored)["records"]["state"] > 0).sum())
    assert 0 < known < 48
    monkeypatch.setattr(image_check, "check_image", check_slowly)
    start(cfg)
    assert len(checked) == 48 - known
    assert results_of(folder) == undisturbed(shards)


@pytest.mark.promise(
    "guides/how_it_grows.md",
    "a shard was changed since a run began: the same command is refused in one line, before it "
    "trains",
)
@pytest.mark.parametrize("change", ["other images", "fewer images", "no shard"])
def test_other_shards_are_refused(shards, change):
    cfg, folder = shards("changed")
    assert die_at("after_step:4", start, cfg) == KILLED
    shard = Path(cfg.data.root).parent / "s-1.tar"
    if change == "other images":
        write_shard(shard, 16, 15)
        write_shard(shard, 17, 16)
    elif change == "fewer images":
        write_shard(shard, 16, 12)
    else:
        shard.unlink()
    with pytest.raises(UserError, match="has other images, labels or splits") as error:
        start(cfg)
    assert "\n" not in str(error.value)
    assert not folder.summary.exists()
