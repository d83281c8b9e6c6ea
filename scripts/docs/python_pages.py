"""Reference of the Python API: a page per part, whose entries are written out on the site."""

from __future__ import annotations

import inspect
import re
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
    parts = load_texts("python")["pages"]
    entries: dict[str, list[str]] = {key: [] for key in parts}
    for name in list_public_names():
        entries[_find_part(name)].append(name)
    pages = {}
    for key, part in parts.items():
        rows = [(_link(_written(name), part["title"]), _summarize(name)) for name in entries[key]]
        pages[f"reference/python/{key}.md"] = render(
            "python.md",
            title=part["title"],
            text=part["text"],
            summary=table(("name", "description"), rows),
            members="losses" not in key,  # theirs are parts of the computation
            names=[(name, _written(name)) for name in entries[key]],
        )
    return pages


@cache
def list_public_names() -> tuple[str, ...]:
    """Returns the dotted names of the public API, each once, under the shortest package.

    They are those of every `__all__`, those of `dml` itself, and the classes and functions that a
    config names by `_target_`.
    """
    names = [f"{module}.{name}" for name, module in dml.FOR_USERS.items()]
    for path in sorted(_ROOT.rglob("__init__.py"), key=lambda one: len(one.parts)):
        package = ".".join(("dml", *path.parent.relative_to(_ROOT).parts))
        names += [f"{package}.{name}" for name in getattr(get_object(package), "__all__", ())]
    texts = [path.read_text(encoding="utf-8") for path in CONFIGS.rglob("*.yaml")]
    names += sorted({one for text in texts for one in re.findall(r"_target_: (dml\.\S+)", text)})
    seen: dict[int, str] = {}
    for name in (*names, *load_texts("python")["further"]):
        seen.setdefault(id(get_object(name)), name)
    return tuple(seen.values())


def _find_part(name: str) -> str:
    """Returns the part with the longest prefix of a name."""
    lengths = {
        key: max(len(one) * name.startswith(f"{one}.") for one in part["prefixes"])
        for key, part in load_texts("python")["pages"].items()
    }
    return max(lengths, key=lambda key: lengths[key])


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
