"""Composed configs are kept between processes as long as the config files stay the same."""

from __future__ import annotations

import pytest

from dml.reporting import composition_cache


@pytest.fixture
def new_process(monkeypatch, tmp_path):
    """Forgets what the process knows, as a new one would; returns the folder of configs."""
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "train.yaml").write_text("seed: 0\n")
    monkeypatch.setattr(composition_cache, "CONFIGS", configs)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def begin():
        composition_cache._folder.cache_clear()
        return configs

    yield begin
    begin()


def load(value, *words):
    return composition_cache.load_or_compute(words or ("loss=ms",), lambda: {"value": value})[
        "value"
    ]


def test_values_are_known_to_the_next_process(new_process):
    new_process()
    assert [load(1), load(2), load(3, "loss=c1")] == [1, 1, 3]
    new_process()
    assert [load(4), load(5, "loss=c1"), load(6, "loss=c2")] == [1, 3, 6]


def test_a_changed_file_or_format_invalidates_everything(new_process, monkeypatch):
    new_process()
    load(1)
    (new_process() / "train.yaml").write_text("seed: 1\n")
    assert load(2) == 2
    new_process()
    monkeypatch.setattr(composition_cache, "FORMAT", composition_cache.FORMAT + 1)
    assert load(3) == 3


def test_old_folders_are_deleted(new_process):
    for seed in range(composition_cache.FOLDERS_KEPT + 2):
        (new_process() / "train.yaml").write_text(f"seed: {seed}\n")
        load(seed)
    assert len(list(composition_cache.cache_folder().iterdir())) == composition_cache.FOLDERS_KEPT
    new_process()
    assert load(-1) == seed


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_file_costs_time_only(new_process, content):
    new_process()
    load(1)
    (path,) = composition_cache.cache_folder().glob("*/*.json")
    path.write_text(content)
    new_process()
    assert load(2) == 2


def test_a_home_that_cannot_be_written_to(new_process, tmp_path):
    new_process()
    (tmp_path / "cache").write_text("a file instead of a folder")
    assert load(1) == 1
