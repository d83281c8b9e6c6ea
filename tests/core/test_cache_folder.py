"""The folder of caches: XDG_CACHE_HOME, else in the home; without a home none can be made."""

import pwd
from pathlib import Path

import pytest

from dml.core.cache_folder import cache_folder


@pytest.mark.parametrize("value", ["", None])
def test_in_the_home(monkeypatch, value):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_folder() == Path("/home/ada/.cache/dml-benchmark")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch/ada")
    assert cache_folder() == Path("/scratch/ada/dml-benchmark")


def test_of_a_user_without_a_home_it_cannot_be_made(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # KeyError
    with pytest.raises(OSError, match="Not a directory"):
        cache_folder().mkdir(parents=True)
