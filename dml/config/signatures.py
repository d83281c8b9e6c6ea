"""Binds the options of a node to the constructor named by its `_target_`.

Every problem is told by its dotted option before anything is built, whoever wrote the class:
unknown and missing arguments, and values of another type than the argument's annotation or default.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import nn

from dml.core.errors import ConfigError, nearest

WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a node of options",
    type(None): "null",
    Path: "text",
}


LOSS_KEYS = ("name", "result_id", "batch_kind", "miner")  # the rest goes to the constructor
METHOD_KEYS = ("result_id",)


def located(target: Any, option: str) -> Callable[..., Any]:
    """The class or function with a dotted path.

    Raises:
        ConfigError: there is none.
    """
    if not isinstance(target, str) or not target:
        raise ConfigError([f"{option}._target_: '{target}' is no dotted path of a class"])
    try:
        found = resolve_name(target)
    except ModuleNotFoundError as error:
        raise ConfigError(
            [f"{option}._target_: no module '{error.name}' for {target}; is it in PYTHONPATH?"]
        ) from error
    except AttributeError as error:
        module, _, name = target.rpartition(".")
        hint = nearest(name, _public(module))
        raise ConfigError([f"{option}._target_: {module} has no '{name}'{hint}"]) from error
    except Exception as error:  # the module is the user's, and anything may happen in it
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError([f"{option}._target_: {target} cannot be imported: {reason}"]) from error
    if not callable(found):
        raise ConfigError([f"{option}._target_: {target} is no class or function"])
    return found


def _public(module: str) -> Iterable[str]:
    try:
        return dir(resolve_name(module))
    except Exception:  # only for a hint
        return ()


def accepted_parameters(target: Any) -> dict[str, inspect.Parameter]:
    """What a class accepts by name: its own arguments and those its `**kwargs` pass upwards.

    Annotations are types where they can be resolved, else left out.
    """
    if not inspect.isclass(target):
        return dict(_named(target))
    accepted: dict[str, inspect.Parameter] = {}
    for cls in target.__mro__:
        if cls in (nn.Module, object):
            break
        if "__init__" not in vars(cls):
            continue
        for name, one in list(_named(vars(cls)["__init__"]).items())[1:]:
            accepted.setdefault(name, one)
        if not _takes_more(vars(cls)["__init__"]):
            break
    return accepted


def problems(
    node: dict[str, Any], option: str, *reserved: str, given: Iterable[str] = ()
) -> Iterator[str]:
    """What is wrong with a node, one line each; at most one where its target does not exist.

    Args:
        node: with `_target_`.
        option: its dotted name.
        reserved: keys that are not for the constructor.
        given: arguments that the caller passes.
    """
    try:
        target = located(node.get("_target_"), option)
        accepted = accepted_parameters(target)
        # Not of all that is accepted: a class gives its parents what they cannot do without.
        own = inspect.signature(target).parameters
    except ConfigError as error:
        yield from error.problems
        return
    except (TypeError, ValueError):  # a builtin without a signature
        return
    values = {k: v for k, v in node.items() if k not in (*reserved, "name", "_target_")}
    lenient = not inspect.isclass(target) and _takes_more(target)
    for name, value in values.items():
        if name not in accepted:
            if not lenient and not name.startswith("_"):  # Hydra's own, such as _partial_
                hint = nearest(name, accepted)
                yield f"{option}.{name}: {target.__name__} takes no such argument{hint}"
        elif problem := misfit(value, accepted[name]):
            yield f"{option}.{name}: {problem}"
    for name, one in accepted.items():
        if one.default is one.empty and name in own and name not in {*values, *given}:
            yield f"{option}.{name}: missing; give it a value"


def misfit(value: Any, parameter: inspect.Parameter) -> str:
    """Why a value does not fit an argument; empty if it does, or if nothing is known of it."""
    kind = parameter.annotation
    if kind is parameter.empty:
        # Other packages annotate little, but a number by default means that it computes with it.
        kind = {bool: bool, int: float, float: float}.get(type(parameter.default), Any)
    if _fits(value, kind):
        return ""
    shown = "null" if value is None else repr(value)
    return f"{shown} must be {_said(kind)}"


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(value, dict) and "_target_" in value:  # becomes an object
        return True
    origin, options = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in options)
    if origin is Literal:
        return value in options
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in (bool, str, type(None)):
        return isinstance(value, kind)
    if kind is Path:
        return isinstance(value, str)
    if origin in (list, tuple) or kind in (list, tuple):
        return isinstance(value, list)
    return True


def _said(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) in (Union, types.UnionType):
        parts = [_said(one) for one in get_args(kind)]
        return " or ".join(part for part in dict.fromkeys(parts) if part)
    if get_origin(kind) is Literal:
        return "one of " + " | ".join(map(str, get_args(kind)))
    return WORDS.get(list if get_origin(kind) in (list, tuple) else kind, "")


def _named(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that can be given by name, with resolved annotations."""
    try:
        hints = get_type_hints(function)
    except Exception:  # names that exist only for the type checker
        hints = {}
    found = {}
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            found[name] = one.replace(annotation=hints.get(name, one.empty))
    return found


def _takes_more(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(one.kind is one.VAR_KEYWORD for one in parameters)


def arguments(node: dict[str, Any], *reserved: str) -> dict[str, Any]:
    """The node without the keys that are about it rather than for its constructor."""
    return {key: value for key, value in node.items() if key not in (*reserved, "name")}
