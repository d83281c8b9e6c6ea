# ruff: noqa: RUF001
"""Texts on terminals and in logs whose encoding lacks some of their characters.

Characters that this program prints by itself are replaced by similar ASCII; others, such as letters
in the name of a file, by their number (`\\xfc`), so that different names stay different.
"""

from __future__ import annotations

import codecs
import sys

HANDLER = "dml.similar"  # name of the error handler
SIMILAR = {
    "–": "-",
    "—": "-",
    "─": "-",
    "…": "...",
    "±": "+/-",
    "×": "x",
    "·": "*",
    "≈": "~",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "▲": "^",
    "▼": "v",
    "✕": "x",
    "Δ": "difference",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "λ": "lambda",
    "ε": "epsilon",
}


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    parts = []
    for character in error.object[error.start : error.end]:
        shown = character.encode("ascii", "backslashreplace").decode("ascii")
        parts.append(SIMILAR.get(character, shown))
    return "".join(parts), error.end


codecs.register_error(HANDLER, _replace)


def fit_encoding(text: str, encoding: str) -> str:
    """Returns a text in which all characters have a form in an encoding."""
    if text.isascii() or encoding.lower().startswith("utf"):
        return text
    return text.encode(encoding, HANDLER).decode(encoding)


def accept_all_characters() -> None:
    """Lets stdout and stderr write any text; no text fails with a UnicodeEncodeError then.

    Nothing changes for streams in UTF-8 and for those of other programs that do not allow it.
    """
    for stream in (sys.stdout, sys.stderr):
        is_utf = str(getattr(stream, "encoding", "utf-8")).lower().startswith("utf")
        if hasattr(stream, "reconfigure") and not is_utf:
            stream.reconfigure(errors=HANDLER)
