"""Keys and passwords, masked where commands and configs are printed, logged, stored or sent.

Secret are, by their name, options that end in `api_key`, `secret_key`, `access_key`, `private_key`,
`token`, `password` or `secret`, also inside `{…}`; and by their form, parts of a URL: the password
of `postgresql://user:password@host/runs`, the token of `https://token@host`, and parameters such as
`?token=…`, `sslpassword=…`, `X-Amz-Signature=…` and `sig=…`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from dml.core.plain_text import show_text

MASK = "***"
_NAME = r"(?:(?:api|access|private|secret)_?key|token|\w*password|\w*passwd|secret)"
_DOTTED = rf"(?:[\w./@-]*[._/])?{_NAME}"
_SECRET_NAME = re.compile(rf"[+~]*(?:.*[._])?{_NAME}", re.IGNORECASE)
_WORD = re.compile(rf"([+~]*{_DOTTED}(?:@[\w.]*)?=)(.+)", re.IGNORECASE | re.DOTALL)
_SHELL = r"""'"'"'"""  # an apostrophe inside apostrophes, as shlex.join writes it
_QUOTED = rf"""({_SHELL}.*?{_SHELL}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# A word in quotes: what follows is its value, to the closing quote.
_QUOTED_WORD = re.compile(
    rf"""(["'])([+~]*{_DOTTED}=)((?:{_SHELL}|(?!\1)[^\n])*)\1""", re.IGNORECASE
)
_PLACEHOLDER = r"<(?:token|key|password|secret|value)>(?=[\s,;.:)'\"]|$)"  # of our own advice
# Without quotes a value may have blanks: it ends where another option or a bracket does.
_OPTION = re.compile(
    rf"""(\b{_DOTTED}=)(?!{_PLACEHOLDER})(?:{_QUOTED}|[^\s"';}}][^\n"';}}]*?(?=\s+[+~]*[\w./@]+=|["';}}\n]|$))""",
    re.IGNORECASE,
)
_ENTRY = re.compile(
    rf"""([{{,]\s*({_SHELL}|["']?){_DOTTED}\2\s*:\s*)(?:{_QUOTED}|[^\s,}}\]"'][^,}}\]\n]*)""",
    re.IGNORECASE,
)
_PASSWORD = re.compile(
    r"(\b[a-z][a-z0-9+.-]*://[^\s/@:]*):(?:[^\s]+|[^\n/]+)@(?=[^\s@]*)", re.IGNORECASE
)
_USER = re.compile(r"(\b(?:[a-z0-9+.-]*\+)?https?://)[^\s/@:]+@", re.IGNORECASE)
_SECRET_PARAMETER = (
    r"[\w.%-]*(?:token|passw|pwd|secret|signature|credential|api[_-]?key|access[_-]?key|auth(?!or))"
    r"[\w.%-]*|sig|key|jwt|code"
)
_PARAMETER = re.compile(rf"""([?&#;](?:{_SECRET_PARAMETER})=)[^&#\s"']+""", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")


@cache  # hundreds of runs have the same names
def is_secret_name(name: str) -> bool:
    """Returns True if an option of this dotted name holds a key or password."""
    return _SECRET_NAME.fullmatch(name) is not None


def mask_text(text: str) -> str:
    """Replaces the values of secret options and the secrets of URLs in a text.

    The value of an option without quotes is masked to the next option, or to the end of the line:
    it may have blanks.
    """
    if not any(sign in text for sign in ("=", "://", "{", "Bearer", "Basic")):
        return text  # as most values are; saves the searches
    text = _PARAMETER.sub(rf"\1{MASK}", text)
    text = _USER.sub(rf"\1{MASK}@", _PASSWORD.sub(rf"\1:{MASK}@", text))
    text = _ENTRY.sub(rf"\1{MASK}", text)
    text = _QUOTED_WORD.sub(rf"\1\2{MASK}\1", text)
    return _BEARER.sub(rf"\1 {MASK}", _OPTION.sub(rf"\1{MASK}", text))


def mask_word(word: str) -> str:
    """Replaces the secrets in one word of a command line, in which a value may have blanks."""
    secret = _WORD.fullmatch(word)
    return f"{secret[1]}{MASK}" if secret else mask_text(word)


def mask_words(words: Iterable[str]) -> list[str]:
    """Returns the words of a command line without secrets."""
    return [mask_word(word) for word in words]


def mask_options(options: Any) -> Any:
    """Returns a copy of nested dictionaries and lists without secrets."""
    if isinstance(options, dict):
        return {
            name: MASK if value and is_secret_name(str(name)) else mask_options(value)
            for name, value in options.items()
        }
    if isinstance(options, list | tuple):
        return [mask_options(value) for value in options]
    return mask_word(options) if isinstance(options, str) else options


class MaskingFormatter(logging.Formatter):
    """Formats log records without secrets; control characters are shown."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the formatted record without secrets."""
        return show_text(mask_text(super().format(record)))
