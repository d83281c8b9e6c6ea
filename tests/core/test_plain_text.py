"""Texts of strangers reach terminals, logs, pages and spreadsheets as text."""

import io
import json
import logging
import sys
import warnings

import pandas as pd
import pytest
from rich.table import Table as RichTable
from rich.text import Text

from dml.cli.error_lines import print_error, report_errors
from dml.cli.parser import Parser
from dml.core.csv_cells import quote_formulas, unquote_formula, write_csv
from dml.core.errors import UserError
from dml.core.plain_console import PlainConsole
from dml.core.plain_text import (
    escape_json,
    markdown_text,
    print_plain,
    shorten,
    show_line,
    show_text,
)
from dml.core.run_log import run_logger, write_log
from dml.results.tables import Column, Table, markdown_table, terminal_table
from dml.runs import console

C0 = [*range(0x09), *range(0x0B, 0x20), 0x7F]
C1 = range(0x80, 0xA0)
DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
CONTROLS = "".join(map(chr, [*C0, *C1, *DIRECTIONS]))
NO_UTF8 = "\udc80\udcff\udfff\ud800\ud83d"  # no pair of two
TITLE = "\x1b]0;title of the window\x07"
CURSOR = "\x1b[2J\x9b31m"


def has_controls(text: str) -> bool:
    return any(character in CONTROLS for character in text)


def to_error_line(text: str, tmp_path) -> str:
    caught = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", caught)
        print_error(UserError(text))
        print_error(ValueError(text))  # a traceback
        print_error(OSError(2, "No such file", text))
    return caught.getvalue()


def to_stdout(text: str, tmp_path) -> str:
    caught = io.StringIO()
    print_plain(text, file=caught)
    return caught.getvalue()


def to_run_line(text: str, tmp_path) -> str:
    caught = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "console", PlainConsole(file=caught, soft_wrap=True))
        console.print_line(text, logged=False)
        console._print_table(text, False, text, {text: {"map_at_r": text}})
    return caught.getvalue()


def to_log(text: str, tmp_path) -> str:
    with write_log(tmp_path, "run"):
        run_logger.info("note: %s", text)
        logging.getLogger("a.library").warning(text)
    return (tmp_path / "train.log").read_text("utf-8")


def to_table(text: str, tmp_path) -> str:
    table = Table(text, [Column(text, [text, "b"])], caption=text)
    caught = io.StringIO()
    PlainConsole(file=caught).print(terminal_table(table, 400), soft_wrap=True)
    return caught.getvalue()


def to_markdown(text: str, tmp_path) -> str:
    return "\n".join(markdown_table(Table(text, [Column(text, [text])], caption=text)))


def to_parser_error(text: str, tmp_path) -> str:
    caught = io.StringIO()

    @report_errors
    def main(words):
        parser = Parser("text")
        parser.add_argument("--number", type=int)
        parser.parse(words)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", caught)
        for words in ([text], [f"--number={text}"], [f"--{text}"]):
            assert main(words) == 2
    return caught.getvalue()


def to_warning(text: str, tmp_path) -> str:
    """The warnings of a command, and the records of a library that configures no logging."""
    caught = io.StringIO()

    @report_errors
    def main():
        caught.write(warnings.formatwarning(text, UserWarning, f"{text}.py", 1, text))
        logging.lastResort.handle(logging.makeLogRecord({"msg": text, "levelname": "ERROR"}))
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", caught)
        assert main() == 0
    assert logging.lastResort.formatter is None
    return caught.getvalue()


SINKS = [
    *(to_error_line, to_stdout, to_run_line, to_log, to_table, to_markdown),
    *(to_parser_error, to_warning),
]


@pytest.mark.parametrize("sink", SINKS)
def test_no_control_character_reaches_a_sink(sink, tmp_path):
    for text in [f"a{CONTROLS}b", TITLE, CURSOR]:
        assert not has_controls(sink(text, tmp_path)), repr(text)


@pytest.mark.parametrize("sink", SINKS)
def test_escapes_are_shown_and_other_texts_stay(sink, tmp_path):
    assert "x1b" in sink(TITLE, tmp_path)
    assert "Große Möwe 鳥 🐦" in sink("Große Möwe 鳥 🐦", tmp_path)


@pytest.mark.parametrize("sink", [to_parser_error, to_warning])
def test_no_secret_reaches_a_sink(sink, tmp_path):
    assert "plantedsecret789" not in sink("tracking.api_key=plantedsecret789", tmp_path)


@pytest.mark.parametrize("sink", [to_stdout, to_run_line, to_table, to_markdown])
def test_bytes_that_are_no_utf8_are_shown(sink, tmp_path):
    shown = sink(f"a{NO_UTF8}b", tmp_path)
    assert "udc80" in shown
    assert shown.encode("utf-8")  # as strict streams do


def test_json_shows_bytes_that_are_no_utf8():
    written = escape_json(json.dumps({"name": NO_UTF8}, ensure_ascii=False))
    assert json.loads(written.encode("utf-8")) == {"name": NO_UTF8}


def test_tabs_and_newlines_stay_in_texts_but_not_in_lines():
    assert show_text("a\tb\nc") == "a\tb\nc"
    assert show_line("a\tb\nc") == r"a\tb\nc"
    assert show_text("\x1b\x9b\u202e") == r"\x1b\x9b\u202e"
    for character in CONTROLS:
        assert show_text(f"a{character}b").isprintable()


def test_styles_of_our_own_stay():
    caught = io.StringIO()
    shown = PlainConsole(file=caught, force_terminal=True, color_system="standard")
    shown.print(Text(f"good{TITLE}", "red"))
    cells = RichTable()
    cells.add_column("name")
    cells.add_row(f"[bold]{CURSOR}")
    shown.print(cells)
    text = caught.getvalue()
    assert "\x1b[31m" in text
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text
    assert "[bold]" in text


def test_json_keeps_its_content():
    texts = {"name": CONTROLS}
    written = escape_json(json.dumps(texts, ensure_ascii=False))
    assert json.loads(written) == texts
    assert not has_controls(written)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[a](http://b)", r"\[a\](http\://b)"),
        ("![a](b.png)", r"\!\[a\](b.png)"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("HTTPS://a WWW.b", r"HTTPS\://a WWW\.b"),
        ("`code`", r"\`code\`"),
        ("\\[a](b)", r"\\\[a\](b)"),
        ("a\n# b", r"a\\n# b"),
    ],
)
def test_markdown_shows_links_images_and_html_as_text(text, shown):
    assert markdown_text(text) == shown


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+2",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "-a\r=1",
    "-",
    "'=1",
    "''+a",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_texts_in_csv_and_come_back(text):
    table = quote_formulas(pd.DataFrame({text: [text]}))
    assert table.iloc[0, 0] == table.columns[0] == f"'{text}"
    written = write_csv(pd.DataFrame({text: [text]}))
    read = pd.read_csv(io.StringIO(written, newline=""), dtype=str)
    assert read.shape == (1, 1)
    assert unquote_formula(read.iloc[0, 0]) == text


def test_numbers_and_plain_texts_stay_in_csv():
    cells = ["-1.5", "+2", "1e-3", "-inf", "it's", "'a'", "a=b", -1.5, None, ""]
    assert [*quote_formulas(pd.DataFrame({"a": cells}, dtype=object)).a] == cells
    assert unquote_formula("it's") == "it's"
    assert unquote_formula("'a'") == "'a'"


@pytest.mark.parametrize("length", [3, 4, 10, 11])
def test_a_shortened_text_has_its_ends(length):
    text = "abcdefghijklmnopqrstuvwxyz"
    short = shorten(text, length)
    start, _, end = short.partition("…")
    assert len(short) == length
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(end) >= len(start)
    assert shorten(text[:length], length) == text[:length]
