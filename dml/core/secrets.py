"""Keys and passwords, masked where commands and configs are printed, logged, stored or sent.

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
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/@:]*):(\S+)@", re.IGNORECASE)


@cache  # hundreds of runs have the same names
def is_secret_name(name: str) -> bool:
    """Returns True if an option of this dotted name holds a key or password."""
    return _SECRET_NAME.fullmatch(name) is not None


def mask_text(text: str) -> str:
    """Replaces passwords of URLs and the values of secret options in a text such as a command."""
    if "=" not in text and "://" not in text:
        return text  # as most values are; saves two searches
    return _OPTION.sub(rf"\1{MASK}", _URL.sub(rf"\1:{MASK}@", text))


def mask_options(options: Any) -> Any:
    """Returns a copy of nested dictionaries and lists without secrets."""
    if isinstance(options, dict):
        return {
            name: MASK if value and is_secret_name(str(name)) else mask_options(value)
            for name, value in options.items()
        }
    if isinstance(options, list):
        return [mask_options(value) for value in options]
    return mask_text(options) if isinstance(options, str) else options


class MaskingFormatter(logging.Formatter):
    """Formats log records without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the formatted record without secrets."""
        return mask_text(super().format(record))
