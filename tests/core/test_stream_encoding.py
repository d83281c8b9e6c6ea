"""Characters that an encoding lacks."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.core.plain_console import PlainConsole
from dml.core.stream_encoding import accept_all_characters, fit_encoding


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8", "utf-16"])
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_has_a_form_that_can_be_written(encoding, text):
    shown = fit_encoding(text, encoding)
    assert shown.encode(encoding).decode(encoding) == shown
    assert fit_encoding(shown, encoding) == shown
    if text.isascii():
        assert shown == text


def test_known_characters_become_similar_ones_and_letters_stay_apart():
    assert fit_encoding("scores – 3 ± 1 …", "ascii") == "scores - 3 +/- 1 ..."
    assert fit_encoding("ü – ü", "latin-1") == "ü - ü"
    assert fit_encoding("grün", "ascii") == r"gr\xfcn"
    assert fit_encoding("产品", "ascii") != fit_encoding("图片", "ascii")


@pytest.mark.parametrize(("encoding", "plus_minus"), [("ascii", "+/-"), ("latin-1", "±")])
def test_streams_of_a_program_take_any_text(encoding, plus_minus, monkeypatch):
    out = io.BytesIO()
    stream = io.TextIOWrapper(out, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    accept_all_characters()
    print("─ 产 ±", flush=True)
    assert out.getvalue().decode(encoding) == f"- \\u4ea7 {plus_minus}\n"


def test_a_console_of_a_program_prints_any_text():
    """`dml.train` in a program whose output is ASCII: its streams stay as they are."""
    out = io.BytesIO()
    stream = io.TextIOWrapper(out, encoding="ascii", write_through=True)
    PlainConsole(file=stream).print("MAP@R – grün ± …")
    assert out.getvalue() == b"MAP@R - gr\\xfcn +/- ...\n"


def test_streams_that_cannot_be_changed_stay(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    accept_all_characters()
    print("±")
    assert sys.stdout.getvalue() == "±\n"
