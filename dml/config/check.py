"""The check of a composed config: every problem at once, one line each.

Types and ranges are in `schema.py`, options that exclude each other in `compatibility.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dml.config.compatibility import find_conflicts
from dml.config.identity import flatten
from dml.config.options import set_option
from dml.config.schema import Config
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.plain_text import show_line

C = TypeVar("C", bound=Config)
SURROGATE = re.compile(r"[\ud800-\udfff]")  # bytes of a word that are no text in this locale
# Parts of a location that pydantic adds for the members of a union.
UNION_MEMBER = re.compile(r"(constrained-|literal\[|dict\[|list\[|tuple\[|is-instance|function-).*"
                          r"|int|float|bool|str|path|callable")  # fmt: skip


@overload
def check(cfg: DictConfig | dict[str, Any]) -> Config: ...


@overload
def check(cfg: DictConfig | dict[str, Any], schema: type[C]) -> C: ...


def check(cfg: DictConfig | dict[str, Any], schema: type[Any] = Config) -> Any:
    """Returns the typed config of a composed or stored one.

    Args:
        cfg: as Hydra composed it, or as a run folder has it.
        schema: `Config`, or a class that adds options to it.

    Raises:
        ConfigError: with every problem, one line each.
    """
    if isinstance(cfg, dict):
        cfg = OmegaConf.create(cfg)
    _refuse_missing(cfg)
    plain = _resolve(cfg)
    options = flatten(plain)
    if plain.get("search") == {}:  # after search.<option>=<value> without a search
        raise ConfigError(["search: missing; add search=bayes"])
    try:
        # Validated as JSON: a list may become a tuple, but "3" does not become a number.
        config = schema.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise ConfigError(describe_errors(error.errors(), list(options))) from error
    conflicts = dict(find_conflicts(config, options))
    if conflicts:
        raise ConfigError([f"{name}: {problem}" for name, problem in conflicts.items()])
    config._composed, config._plain = cfg, plain
    return config


def _refuse_missing(cfg: DictConfig) -> None:
    """Raises ConfigError for `???`, to which references cannot be resolved."""
    problems = []
    for name, value in flatten(OmegaConf.to_container(cfg, resolve=False)).items():
        if value == "???":
            form = "<module>.<class>" if name.endswith("._target_") else "<value>"
            problems.append(f"{name}: missing; write {name}={form}")
    if problems:
        raise ConfigError(problems)


def _resolve(cfg: DictConfig) -> dict[str, Any]:
    """Returns the options with all references resolved; raises ConfigError if that fails."""
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        ours = first_line(error).partition(f"{ConfigError.__name__} raised while resolving ")[2]
        reason = ours.partition(": ")[2] or f"{error.full_key}: {first_line(error)}"
        raise ConfigError([reason]) from error
    problems = []
    not_utf8: set[str] = set()  # each is named once, by its first option
    for name, value in flatten(plain).items():
        text = str(value)
        if "${" in text:
            problems.append(f"{name}: contains ${{, which a stored config cannot")
        if SURROGATE.search(text) and text not in not_utf8:
            not_utf8.add(text)
            shown = show_line(text)
            problems.append(f"{name}: {shown} is not UTF-8; rename it, or set PYTHONUTF8=1")
    if problems:
        raise ConfigError(problems)
    return plain


def change(config: C, values: Mapping[str, Any]) -> C:
    """Returns a config with other values of dotted options, and of those that follow from them.

    Raises:
        ConfigError: a value is wrong.
    """
    composed = config._composed.copy()
    OmegaConf.set_readonly(composed, False)
    for name, value in values.items():
        set_option(composed, name, value)
    return check(composed, type(config))


def describe_errors(
    errors: Sequence[ErrorDetails], names: Sequence[str], node: str = ""
) -> list[str]:
    """Returns a line for each option that pydantic rejected.

    Args:
        errors: errors of pydantic; an option of several types has several errors.
        names: names of valid options, for `did you mean`.
        node: dotted name of the node that was validated.
    """
    lines: dict[str, str] = {}
    hints: dict[str, str] = {}
    lists: dict[str, str] = {}  # of options that take lists alone
    for error in errors:
        name = _dotted(node, error["loc"])
        problem = _describe(error, name, names)
        if name in lines:
            alternative = problem.partition(" must be ")[2]
            lines[name] += f" or {alternative}"
            lists.pop(name, None)
        else:
            lines[name] = problem
            if error["type"] == "list_type" and isinstance(error["input"], str | int | float):
                lists[name] = f"; write {name}=[{error['input']}]"
        if error["type"] == "literal_error":
            hints[name] = nearest(error["input"], error["ctx"]["expected"].split("'")[1::2])
    hints |= lists
    return [f"{name}: {problem}{hints.get(name, '')}" for name, problem in lines.items()]


def _dotted(node: str, location: tuple[int | str, ...]) -> str:
    """Returns the name of an option: `transform` and `("scale", 0)` give `transform.scale[0]`."""
    name = node
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part != "[key]" and not UNION_MEMBER.fullmatch(part):  # [key] follows a wrong key
            name += f".{part}"
    return name.removeprefix(".")


def _describe(error: ErrorDetails, name: str, names: Sequence[str]) -> str:
    """Returns the message of one error of pydantic, without the name of the option."""
    kind, entered = error["type"], error["input"]
    if kind == "missing":
        return "missing; give it a value"
    if kind == "extra_forbidden":
        others = [other for other in names if not f"{other}.".startswith(f"{name}.")]
        return f"no such option{nearest(name, others)}"
    value = json.dumps(entered, ensure_ascii=False, default=str)
    if isinstance(entered, str):
        value = f"'{entered}'"
    if kind == "value_error":
        return f"{value} {error['ctx']['error']}"
    message = error["msg"].replace("Input should", f"{value} must")
    message = message.replace("an object", "a node of options")
    return message.replace("a valid array", "a list").replace("a valid string", "text")
