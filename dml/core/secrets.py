"""Keys and passwords, masked where commands and configs are printed, logged, stored or sent.

Secret are, by their name, options that end in `api_key`, `secret_key`, `access_key`, `private_key`,
`token`, `password` or `secret`, also inside `{…}`; and by their form, parts of a URL: the password
of `postgresql://user:password@host/runs`, the token of `https://token@host`, and parameters such as
`?token=…`, `sslpassword=…`, `X-Amz-Signature=…` and `sig=…`.

A truth value is no secret, nor a small number as a token: `class_token=false` and `num_token=4` are
options of networks.
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
_WORD = re.compile(rf"([+~]*{_DOTTED}(?:@[\w.]*)?=)(?P<value>.+)", re.IGNORECASE | re.DOTALL)
_TRUTH_VALUE, _SMALL_NUMBER = "(?:true|false|null)", r"\d{1,4}"
_TOKEN = re.compile(r".*token[\"'\s:=]*", re.IGNORECASE | re.DOTALL)
_SHELL = r"""'"'"'"""  # an apostrophe inside apostrophes, as shlex.join writes it
_QUOTED = rf"""({_SHELL}.*?{_SHELL}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# A word in quotes: what follows is its value, to the closing quote.
_QUOTED_WORD = re.compile(
    rf"""((["'])[+~]*{_DOTTED}=)(?P<value>(?:{_SHELL}|(?!\2)[^\n])*)(?=\2)""", re.IGNORECASE
)
_PLACEHOLDER = r"<(?:token|key|password|secret|value)>(?=[\s,;.:)'\"]|$)"  # of our own advice
# Without quotes a value may have blanks: it ends where another option or a bracket does.
_VALUE_END = r"""(?=\s+[+~]*[\w./@]+=|["';}\n]|$)"""
_OPTION = re.compile(
    rf"""(\b{_DOTTED}=)(?!{_PLACEHOLDER})"""
    rf"""(?P<value>{_QUOTED}|[^\s"';}}][^\n"';}}]*?{_VALUE_END})""",
    re.IGNORECASE,
)
_ENTRY = re.compile(
    rf"""([{{,]\s*(?P<quote>{_SHELL}|["']?){_DOTTED}(?P=quote)\s*:\s*)"""
    rf"""(?P<value>{_QUOTED}|[^\s,}}\]"'][^,}}\]\n]*)""",
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


def _holds_secret(name: str, value: Any) -> bool:
    """Returns True if an option of this dotted name and value holds a key or password."""
    if not value or isinstance(value, bool) or not is_secret_name(name):
        return False
    return not _is_harmless(name, str(value))


def _is_harmless(name: str, value: str) -> bool:
    """Returns whether the value of an option with the name of a secret cannot be one.

    Args:
        name: of the option; signs may follow, as in `class_token=`.
        value: as it is written.
    """
    if re.fullmatch(_TRUTH_VALUE, value, re.IGNORECASE):
        return True
    is_token = _TOKEN.fullmatch(name) is not None
    return is_token and re.fullmatch(_SMALL_NUMBER, value) is not None


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
    text = _ENTRY.sub(_mask_value, text)
    text = _QUOTED_WORD.sub(_mask_value, text)
    return _BEARER.sub(rf"\1 {MASK}", _OPTION.sub(_mask_value, text))


def _mask_value(match: re.Match[str]) -> str:
    """Returns an option of a text with its secret replaced."""
    name, value = match[1], match["value"]
    return match[0] if _is_harmless(name, value.strip()) else f"{name}{MASK}"


def mask_word(word: str) -> str:
    """Replaces the secrets in one word of a command line, in which a value may have blanks."""
    secret = _WORD.fullmatch(word)
    return _mask_value(secret) if secret else mask_text(word)


def mask_words(words: Iterable[str]) -> list[str]:
    """Returns the words of a command line without secrets."""
    return [mask_word(word) for word in words]


def mask_options(options: Any) -> Any:
    """Returns a copy of nested dictionaries and lists without secrets."""
    if isinstance(options, dict):
        return {
            name: MASK if _holds_secret(str(name), value) else mask_options(value)
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
