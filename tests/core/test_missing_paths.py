"""What is said of a path that does not exist: the nearest name, wherever the path goes wrong."""

import os

import pytest

from dml.core.missing_paths import describe_missing


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder, with photos/kind0/a.png and what may not be named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "kind0").mkdir(parents=True)
    (tmp_path / "photos" / "kind0" / "a.png").touch()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "Übung").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("fotos", "photos"),
        ("Photos", "photos"),
        ("photos/kind1", "photos/kind0"),
        ("fotos/kind0/a.png", "photos/kind0/a.png"),
        ("./photos/kind0/b.png", "photos/kind0/a.png"),
        ("photos/../fotos", "photos"),
        ("Ubung", "Übung"),
        ("fotos/", "photos"),
    ],
)
def test_the_nearest_name_is_suggested(place, path, near):
    assert describe_missing(path, "x") == f"{path} does not exist; did you mean '{near}'?"
    absolute = os.path.join(place, path)
    assert describe_missing(absolute).endswith(f"did you mean '{place / near}'?")


@pytest.mark.parametrize(
    "path", ["elsewhere", ".hiden", "fotos/kind9/a.png", "/no/such/thing", "x" * 300, "a\0b", ""]
)
def test_nothing_is_suggested_that_is_not_there(place, path):
    shown = describe_missing(path, "give another")
    assert shown.endswith(" does not exist; give another")
    assert "\0" not in shown
    assert describe_missing(path).endswith(" does not exist")


def test_a_name_in_another_encoding_is_shown(place):
    path = os.fsdecode(b"phot\xffs")
    describe_missing(path).encode()  # it can be printed
