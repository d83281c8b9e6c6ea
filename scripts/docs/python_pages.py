"""Reference of the Python API: a page per part, whose entries are written out on the site."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hydra.utils import get_object

import dml
from dml.core.installation import CONFIGS
from scripts.docs.component_pages import render
from scripts.docs.descriptions import load_texts
from scripts.docs.docstrings import read_docstring
from scripts.docs.markdown import escape, first_sentence, table

_ROOT = Path(dml.__file__).parent


def make_python_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    entries: dict[str, list[str]] = defaultdict(list)
    for name in list_public_names():
        entries[_find_part(name)].append(name)
    pages = {}
    for key, part in load_texts("python")["pages"].items():
        rows, names = [], []
        for name in entries[key]:
            written = _written(name)
            rows.append((_link(written, part["title"]), _summarize(name)))
            names.append((name, written))
        pages[f"reference/python/{key}.md"] = render(
            "python.md",
            title=part["title"],
            text=part["text"],
            summary=table(("name", "description"), rows),
            members="losses" not in key,  # theirs are parts of the computation
            names=names,
        )
    return pages


@cache
def list_public_names() -> tuple[str, ...]:
    """Returns the dotted names of the public API, each once, under the shortest package.

    They are those of every `__all__`, those of `dml` itself, and the classes and functions that a
    config names by `_target_`.
    """
    names = []
    for name, module in dml.FOR_USERS.items():
        names.append(f"{module}.{name}")
    for package in sorted(_list_packages(), key=_count_parts):
        for name in getattr(get_object(package), "__all__", ()):
            names.append(f"{package}.{name}")
    targets = set()
    for path in CONFIGS.rglob("*.yaml"):
        targets |= {*re.findall(r"_target_: (dml\.\S+)", path.read_text(encoding="utf-8"))}
    names += sorted(targets)
    names += load_texts("python")["further"]
    seen: dict[int, str] = {}
    for name in names:
        seen.setdefault(id(get_object(name)), name)
    return tuple(seen.values())


def _list_packages() -> Iterator[str]:
    """Yields the dotted names of `dml` and its packages."""
    for path in _ROOT.rglob("__init__.py"):
        yield ".".join(path.parent.relative_to(_ROOT.parent).parts)


def _count_parts(name: str) -> int:
    return name.count(".")


def _find_part(name: str) -> str:
    """Returns the part with the longest prefix of a name."""
    longest, chosen = -1, ""
    for key, part in load_texts("python")["pages"].items():
        for prefix in part["prefixes"]:
            length = len(prefix) if name.startswith(f"{prefix}.") else 0
            if length > longest:
                longest, chosen = length, key
    return chosen


def _written(name: str) -> str:
    """Returns the name that users import: `dml.load` for `dml.runs.load.load`."""
    last = name.rpartition(".")[2]
    return f"dml.{last}" if dml.FOR_USERS.get(last) == name.rpartition(".")[0] else name


def _link(name: str, package: str) -> str:
    """Returns a link to the entry of a name, without the package that the page is about."""
    return f"[`{name.removeprefix(f'{package}.')}`](#{name.rpartition('.')[2].lower()})"


def _summarize(name: str) -> str:
    target = get_object(name)
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        return "a constant"
    return escape(" ".join(first_sentence(read_docstring(target).text.split("\n\n")[0]).split()))
