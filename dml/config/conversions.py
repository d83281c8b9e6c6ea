"""Types of options with OmegaConf's conversions, which are stricter than pydantic's.

`"3"` is the integer 3, but 3.0 is not an integer and `true` is not a number. Booleans are not text
either: `outputs=true` is a mistake rather than a folder named True.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
}


def _to_integer(value: Any) -> int:
    if type(value) not in (int, str):
        raise ValueError("not an integer")
    return int(value)


def _to_float(value: Any) -> float:
    if type(value) not in (float, int, str):
        raise ValueError("not a number")
    return float(value)


def _to_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    return bool(_to_integer(value))


def _to_text(value: Any) -> str:
    if type(value) not in (str, int, float):
        raise ValueError("not text")
    return str(value)


Integer = Annotated[int, BeforeValidator(_to_integer)]
Float = Annotated[float, BeforeValidator(_to_float)]
Boolean = Annotated[bool, BeforeValidator(_to_boolean)]
Text = Annotated[str, BeforeValidator(_to_text)]
