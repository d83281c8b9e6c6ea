"""Entries of the Python reference in Markdown: the signature, and the docstring by its sections."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from hydra.utils import get_object

from scripts.docs.docstrings import Docstring, read_docstring
from scripts.docs.markdown import escape

_WIDTH = 88  # longer signatures have one parameter a line


def describe(name: str, with_members: bool) -> str:
    """Returns the entry of a public name, without its heading.

    Args:
        name: dotted, of a class, a function or a constant.
        with_members: of a class, also its public methods, each below a heading of level 3.
    """
    target = get_object(name)
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return f"```python\n{name} = {target!r}\n```"
    parts = [_write_signature(name, target), _write_docstring(read_docstring(target))]
    if inspect.isclass(target) and with_members:
        for method_name, method in _list_methods(target):
            docstring = read_docstring(method)
            parts += [f"### {method_name}", _write_signature(method_name, method)]
            parts.append(_write_docstring(docstring))
    return "\n\n".join(part for part in parts if part)


def _list_methods(target: type) -> Iterator[tuple[str, Any]]:
    """Yields the documented public methods that a class defines, in the order of its source.

    `forward` is left out: PyTorch calls it, and the class's docstring describes it.
    """
    for name, method in vars(target).items():
        method = getattr(method, "__func__", method)  # of a class method or a static one
        is_public = not name.startswith("_") and name != "forward"
        if is_public and inspect.isfunction(method) and method.__doc__:
            yield name, method


class _Annotation:
    """A type as it is written in the source: `inspect` shows strings in quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _write_signature(name: str, target: Any) -> str:
    signature = inspect.signature(target)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name != "self":
            annotation = _unquote(parameter.annotation)
            parameters.append(parameter.replace(annotation=annotation))
    if inspect.isclass(target):
        result = inspect.Signature.empty
    else:
        result = _unquote(signature.return_annotation)
    plain = signature.replace(parameters=parameters, return_annotation=result)
    line = f"{name.rpartition('.')[2]}{plain}"
    if len(line) > _WIDTH:
        line = _break_signature(name.rpartition(".")[2], plain)
    return f"```python\n{line}\n```"


def _unquote(annotation: Any) -> Any:
    return _Annotation(annotation) if isinstance(annotation, str) else annotation


def _break_signature(name: str, signature: inspect.Signature) -> str:
    """Returns a signature with a line for each parameter, and `*` before keywords."""
    lines = []
    previous = None
    for parameter in signature.parameters.values():
        kind = parameter.kind
        if kind is parameter.KEYWORD_ONLY and previous not in (kind, parameter.VAR_POSITIONAL):
            lines.append("    *,")
        lines.append(f"    {parameter},")
        previous = kind
    returned = str(signature.replace(parameters=[])).removeprefix("()")
    return "\n".join([f"{name}(", *lines, f"){returned}"])


def _write_docstring(docstring: Docstring) -> str:
    parts = [escape(docstring.text)]
    for title, text in docstring.sections.items():
        parts.append(_write_section(title, text))
    return "\n\n".join(parts)


def _write_section(title: str, text: str) -> str:
    if title == "Example":
        return f"**Example**\n\n```pycon\n{text}\n```"
    if title in ("Returns", "Yields"):
        return f"**{title}**\n\n{escape(text)}"
    entries = []
    for entry in re.split(r"\n(?=\S)", text):  # further lines of an entry are indented
        names, _, meaning = entry.partition(":")
        entries.append(f"- `{names}`: {escape(' '.join(meaning.split()))}")
    heading = {"Args": "Arguments"}.get(title, title)
    return "\n".join([f"**{heading}**", "", *entries])
