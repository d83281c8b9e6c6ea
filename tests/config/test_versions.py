"""Options and classes invented for these tests stand for those added or moved after a run."""

import pytest
from omegaconf import OmegaConf

from dml.config import versions
from dml.config.identity import digest, identity
from dml.config.versions import Addition


@pytest.fixture
def older(changed, monkeypatch):
    """The default config from before `data.crops`, a lookup and the move of the method's class."""
    added = (
        Addition("data.crops", 1),
        Addition("seconds", None),
        Addition("loss.unused", 1, applies=lambda options: options["loss.name"] == "triplet"),
    )
    monkeypatch.setattr(versions, "ADDED_LATER", added)
    monkeypatch.setattr(versions, "LOOKUPS_ADDED_LATER", ("protocol.lookup.momentum",))
    moved = {"dml.methods.plain.Plain": "dml.old.Plain"}
    monkeypatch.setattr(versions, "MOVED_TARGETS", moved)
    return changed("method._target_=dml.old.Plain")


def test_additions_that_keep_the_behavior_keep_the_digest(older, changed):
    lookup = "+protocol.lookup.momentum={cub: 0.9, sop: 1}"
    same = changed("+data.crops=1", "+seconds=null", "+loss.unused=5", lookup)
    assert identity(same) == identity(older)
    assert digest(same) == digest(older)


@pytest.mark.parametrize(
    "change",
    ["+data.crops=2", "+data.crops=1.0", "+data.crops=true", "+seconds=0",
     "+protocol.lookup.momenta=1", "method._target_=dml.methods.xbm.XBM"],
)  # fmt: skip
def test_other_additions_change_the_digest(older, changed, change):
    assert digest(changed(change)) != digest(older)


def test_an_older_config_is_upgraded(older, changed):
    del older["protocol"]["lookup"]
    versions.upgrade(older)
    assert older.data.crops == 1
    assert older.seconds is None
    assert "unused" not in older.loss
    assert older.method._target_ == "dml.methods.plain.Plain"
    kept = changed("+data.crops=3")
    versions.upgrade(kept)
    assert kept.data.crops == 3


def test_options_that_are_no_more_are_dropped(older, changed):
    stored = changed("+data.cache_device=cuda")
    assert digest(stored) == digest(older)
    versions.upgrade(stored)
    assert "cache_device" not in stored.data


def test_upgrade_keeps_references(older):
    OmegaConf.update(older, "seed", "${protocol.nowhere}")
    versions.upgrade(older)
    assert OmegaConf.is_interpolation(older, "seed")
