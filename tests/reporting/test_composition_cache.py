"""Composed configs are remembered between processes, as long as their files stay the same."""

from __future__ import annotations

import pytest

from dml.reporting import composition_cache as compositions


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Begins a new process: what it knows is what the files say."""
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "train.yaml").write_text("seed: 0\n")
    monkeypatch.setattr(compositions, "CONFIGS", configs)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    caches = (compositions._path, compositions._known, compositions._unsaved)

    def begin():
        for one in caches:
            one.cache_clear()
        return configs

    yield begin
    begin()


def ask(value, *words):
    return compositions.remembered(words or ("loss=ms",), lambda: {"value": value})["value"]


def test_what_was_composed_is_known_to_the_next_process(process):
    process()
    assert [ask(1), ask(2), ask(3, "loss=c1")] == [1, 1, 3]
    compositions._save()
    process()
    assert [ask(4), ask(5, "loss=c1"), ask(6, "loss=c2")] == [1, 3, 6]


def test_a_changed_file_forgets_everything(process):
    process()
    ask(1)
    compositions._save()
    (process() / "train.yaml").write_text("seed: 1\n")
    assert ask(2) == 2


def test_two_processes_at_once_lose_nothing(process):
    process()
    ask(1)
    first, unsaved = compositions._known(), compositions._unsaved()
    process()
    ask(2, "loss=c1")
    compositions._save()
    compositions._known().update(first)
    compositions._unsaved().update(unsaved)
    compositions._save()
    process()
    assert [ask(3), ask(4, "loss=c1")] == [1, 2]


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_damaged_file_costs_time_alone(process, content):
    process()
    ask(1)
    compositions._save()
    compositions._path().write_text(content)
    process()
    assert ask(2) == 2


def test_a_home_that_cannot_be_written(process, tmp_path):
    process()
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert ask(1) == 1
    compositions._save()
