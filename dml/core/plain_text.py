"""Texts of other people, shown as text: on terminals, in Markdown and in JSON.

Names of runs, paths, classes and contributed results may hold escape sequences that move the cursor
or set the title of a window, overrides of the writing direction, links, images and HTML.
"""

from __future__ import annotations

import re
import sys
from html import escape
from typing import TextIO

# C0 without tab and newline, DEL, C1; marks, embeddings, overrides and isolates of the direction;
# separators of lines and paragraphs; bytes that are no UTF-8 (in names of files), which no stream
# takes.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MARKDOWN = re.compile(r"[\\\[\]!`]")
_ADDRESS = re.compile(r"(?<=www)\.|:(?=//)", re.IGNORECASE)


def show_text(text: str) -> str:
    r"""Returns a text whose control characters are shown: `\x1b`, `\u202e`.

    Tabs and newlines stay. A text that was shown before stays as it is.
    """
    return text if text.isprintable() else _CONTROLS.sub(_show_character, text)


def show_line(text: str) -> str:
    r"""Returns a text as one line: newlines and tabs are shown as `\n` and `\t` too."""
    return show_text(text).replace("\n", "\\n").replace("\t", "\\t")


def shorten(text: str, length: int) -> str:
    """Returns a text of at most `length` characters (3 or more), without its middle if necessary.

    The end is kept longer than the beginning: it tells files of one folder apart.
    """
    if len(text) <= length:
        return text
    start = (length - 1) // 3
    return f"{text[:start]}…{text[start + 1 - length :]}"


def encode(text: str) -> bytes:
    r"""Returns a text in UTF-8; of names of files, bytes that are no UTF-8 are shown: `\udcff`."""
    return text.encode("utf-8", "backslashreplace")


def print_exact(text: str) -> None:
    """Prints a text for a program, in which names of files have their own bytes where possible."""
    try:
        content = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        content = encode(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(content)


def print_plain(
    text: str, file: TextIO | None = None, end: str = "\n", flush: bool = False
) -> None:
    """Prints a text whose control characters are shown (`show_text`); default: on stdout."""
    print(show_text(text), file=file or sys.stdout, end=end, flush=flush)


def escape_json(text: str) -> str:
    """Returns JSON of equal content in which control characters are written as escapes."""
    return _CONTROLS.sub(_escape_character, text)


def markdown_text(text: str) -> str:
    """Returns one line of Markdown that shows a text: no links, images, code and HTML."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", show_line(text))
    escaped = _ADDRESS.sub(r"\\\g<0>", escaped)  # else a bare address becomes a link
    return escape(escaped, quote=False)


def _show_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_character(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
