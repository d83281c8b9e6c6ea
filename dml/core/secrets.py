"""Keys and passwords, masked wherever something is printed, logged, stored or sent.

Secret are options whose name ends in `api_key`, `secret_key`, `access_key`, `private_key`, `token`,
`password` or `secret`, and the password of a URL (`postgresql://user:password@host/runs`).
"""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

MASK = "***"
_NAME = r"(?:(?:api|access|private|secret)_?key|token|password|passwd|secret)"
_SECRET_NAME = re.compile(rf"(?:.*[._])?{_NAME}", re.IGNORECASE)
_VALUE = r"""("[^"]*"|'[^']*'|[^\s"';}]+)"""
_OPTION = re.compile(rf"(\b(?:[\w.]*[._])?{_NAME}=){_VALUE}", re.IGNORECASE)
_IN_MAPPING = re.compile(rf"""\b{_NAME}["']?:\s*["']?([^\s"',;}}]+)""", re.IGNORECASE)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/@:]*):(\S+)@", re.IGNORECASE)
_MIN_LENGTH = 6  # characters of a value that is masked wherever it stands

_values: set[str] = set()


@cache
def is_secret_name(name: str) -> bool:
    """Returns True if an option of this dotted name holds a key or password."""
    return _SECRET_NAME.fullmatch(name) is not None


def is_masked(value: Any) -> bool:
    """Returns True if a stored value had a secret."""
    return MASK in str(value)


def remember_secrets(options: dict[str, Any]) -> None:
    """Makes `mask_text` hide the secrets among some options (dotted name → value)."""
    for name, value in options.items():
        texts = [match[2] for match in _URL.finditer(str(value))]
        texts += _IN_MAPPING.findall(str(value))
        if is_secret_name(name.lstrip("+~")):
            texts += [str(leaf) for leaf in _leaves(value)]
            texts += [part for text in texts for part in text.split(",")]  # of a grid
        texts = [text.strip("\"'") for text in texts]
        _values.update(text for text in texts if len(text) >= _MIN_LENGTH)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [leaf for part in parts for leaf in _leaves(part)]
    return [value]


def mask_text(text: str) -> str:
    """Replaces secrets in a text: of URLs, behind a name, and all that are remembered."""
    text = _mask_patterns(text)
    for value in sorted(_values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def _mask_patterns(text: str) -> str:
    if "=" not in text and "://" not in text:
        return text  # most texts; hundreds of configs are masked at once
    return _OPTION.sub(rf"\1{MASK}", _URL.sub(rf"\1:{MASK}@", text))


def mask_options(options: Any) -> Any:
    """Returns a copy of nested dictionaries and lists without secrets.

    It depends on names and URLs alone, not on what is remembered: digests are made of it.
    """
    if isinstance(options, dict):
        return {
            name: MASK if value and is_secret_name(str(name)) else mask_options(value)
            for name, value in options.items()
        }
    if isinstance(options, list):
        return [mask_options(value) for value in options]
    return _mask_patterns(options) if isinstance(options, str) else options


class MaskingFormatter(logging.Formatter):
    """Formats log records without secrets.

    Args:
        format: of `logging.Formatter`; this name is that of logging's config.
    """

    def __init__(self, format: str) -> None:
        super().__init__(format)

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        return mask_text(super().format(record))
