"""Binds the options of a node to the constructor named by its `_target_`.

Unknown and missing arguments, and values whose type differs from the argument's annotation or
default, are reported with their dotted options before anything is built, for any class.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from dml.config.check import describe_errors
from dml.core.errors import ConfigError, first_line, nearest, refuse_exits

# Classes whose parameters are nobody's options; by name, since torch takes seconds to load.
BASES = ("torch.nn.modules.module.Module", "builtins.object")


def import_target(target: Any, option: str) -> Callable[..., Any]:
    """Returns the class or function with a dotted path.

    Raises:
        ConfigError: it does not exist or cannot be imported.
    """
    if ":" in str(target):  # `resolve_name` takes it, and Hydra does not
        dotted = str(target).replace(":", ".")
        raise ConfigError([f"{option}._target_: {target} must be a dotted path, as in {dotted}"])
    try:
        with refuse_exits():
            value = resolve_name(target)
        if callable(value):
            return value
        problem = f"{target} is not a class or function"
    except ModuleNotFoundError as error:
        problem = f"no module '{error.name}' for {target}; is its file in the current folder?"
    except AttributeError:
        module, _, name = target.rpartition(".")
        names: list[str] = []
        with suppress(Exception):  # only for a hint
            names = dir(resolve_name(module))
        problem = f"{module} has no '{name}'{nearest(name, names)}"
    except Exception as error:  # the module is the user's and may raise anything
        problem = f"{target} cannot be imported: {first_line(error)}"
    raise ConfigError([f"{option}._target_: {problem}"])


def accepted_parameters(target: Any) -> dict[str, inspect.Parameter]:
    """Returns the named parameters of a class, including those its `**kwargs` pass to base classes.

    Annotations are resolved to types where possible.
    """
    if not inspect.isclass(target):
        return dict(_named_parameters(target))
    accepted: dict[str, inspect.Parameter] = {}
    for cls in target.__mro__:
        if f"{cls.__module__}.{cls.__qualname__}" in BASES:
            break
        if "__init__" not in vars(cls):
            continue
        for name, parameter in list(_named_parameters(vars(cls)["__init__"]).items())[1:]:
            accepted.setdefault(name, parameter)
        if not _has_kwargs(vars(cls)["__init__"]):
            break
    return accepted


def find_argument_problems(
    node: dict[str, Any], option: str, supplied: Collection[str] = (), inner: bool = False
) -> Iterator[str]:
    """Yields the problems of a node, one line each; at most one if its target does not exist.

    Args:
        node: with `_target_`.
        option: its dotted name.
        supplied: names of arguments that the caller adds.
        inner: the node is an argument itself; whoever takes it may pass what is missing.
    """
    try:
        target = import_target(node.get("_target_"), option)
        accepted = accepted_parameters(target)
        # Only the arguments of the class itself are required: it passes those of its base classes.
        required = inspect.signature(target).parameters
    except ConfigError as error:
        yield from error.problems
        return
    except (TypeError, ValueError):  # a builtin without a signature
        return
    values = {name: value for name, value in node.items() if name not in ("name", "_target_")}
    accepts_anything = not inspect.isclass(target) and _has_kwargs(target)
    for name, value in values.items():
        yield from _find_inner_problems(value, f"{option}.{name}")
        if name in accepted:
            yield from find_type_problems(value, accepted[name], f"{option}.{name}")
        elif not accepts_anything and not name.startswith("_"):  # Hydra's own, as _partial_
            hint = nearest(name, accepted)
            yield f"{option}.{name}: {target.__name__} takes no such argument{hint}"
    if not inner:
        optional = values.keys() | supplied | (accepted.keys() - required.keys())
        yield from _find_missing(target, accepted, optional, option, supplied)


def _find_missing(
    target: Any,
    accepted: dict[str, inspect.Parameter],
    optional: Collection[str],
    option: str,
    supplied: Collection[str],
) -> Iterator[str]:
    """Yields a line for each argument without a default that is not optional.

    Of a function in place of a loss, whose arguments would be embeddings, another line says so.
    """
    missing = []
    sizes = ""
    if "num_classes" in supplied:
        sizes = "; num_classes and embedding_size are passed"
    for name, parameter in accepted.items():
        if parameter.default is parameter.empty and name not in optional:
            missing.append(f"{option}.{name}: missing; add +{option}.{name}=<value>{sizes}")
    yield from missing
    if missing and option == "loss" and inspect.isfunction(target):
        yield (
            f"loss: {target.__name__} is a function, which has to return the loss, a "
            f"torch.nn.Module; a function of embeddings and labels is none"
        )


def _find_inner_problems(value: Any, option: str) -> Iterator[str]:
    """Yields the problems of objects among the arguments, also in lists of them."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _find_inner_problems(item, f"{option}[{number}]")
    elif isinstance(value, dict) and "_target_" in value:
        yield from find_argument_problems(value, option, inner=True)


def find_type_problems(value: Any, parameter: inspect.Parameter, option: str) -> Iterator[str]:
    """Yields the problem of a value of the wrong type; nothing if the type is unknown."""
    if isinstance(value, dict) and "_target_" in value:  # becomes an object
        return
    kind = parameter.annotation
    if kind is parameter.empty:
        # Few packages annotate their arguments; the type of a numeric default is used instead.
        kind = {bool: bool, int: float, float: float}.get(type(parameter.default), Any)
    if isinstance(kind, str):  # could not be resolved
        return
    try:
        adapter = TypeAdapter(kind, config=ConfigDict(strict=True))
        adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        if not any(problem["type"] == "callable_type" for problem in error.errors()):
            yield from describe_errors(error.errors(), [], option)
    except (PydanticUserError, NameError):  # a type that pydantic does not know
        return


def _named_parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the parameters that can be passed by name, with resolved annotations."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # names that exist only for the type checker
        signature = inspect.signature(function)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in signature.parameters.items() if p.kind in kinds}


def _has_kwargs(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
