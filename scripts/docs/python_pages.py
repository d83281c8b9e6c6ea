"""Reference of the Python API: a page per part, whose entries mkdocstrings expands on the site."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml  # type: ignore[import-untyped]
from hydra.utils import get_object

import dml
from dml.core.installation import CONFIGS
from scripts.docs.component_pages import render
from scripts.docs.docstrings import read_docstring
from scripts.docs.markdown import escape, first_sentence, table

_ROOT = Path(dml.__file__).parent


@dataclass(frozen=True)
class _Part:
    """A page of the reference.

    Attributes:
        title: its heading.
        text: one sentence below it.
        prefixes: modules whose public names it lists; the longest matching prefix of all parts
            decides.
    """

    title: str
    text: str
    prefixes: tuple[str, ...]


_PARTS = {
    "dml": _Part(
        "dml",
        "Trained networks and whole runs: [In Python](../../python.md) shows them in a program.",
        ("dml.runs",),
    ),
    "losses": _Part(
        "dml.losses",
        "Losses in the calling convention of pytorch-metric-learning: "
        "[ours in your code](../../losses_in_your_code.md).",
        ("dml.losses",),
    ),
    "generic_losses": _Part(
        "dml.losses.generic",
        "Losses of Metrix, for clean and for mixed examples.",
        ("dml.losses.generic",),
    ),
    "methods": _Part(
        "dml.methods",
        "Methods, which turn a batch into a loss: [your own](../../own_code.md#a-method).",
        ("dml.methods",),
    ),
    "retrieval": _Part(
        "dml.retrieval",
        "Exact retrieval metrics, neighbors and geometry of any embeddings.",
        ("dml.retrieval",),
    ),
    "data": _Part(
        "dml.data",
        "Readers of datasets, samplers and splits: [data of your own](../../own_code.md#data).",
        ("dml.data",),
    ),
    "models": _Part(
        "dml.models",
        "Backbones and the embedder: [networks](../../networks.md).",
        ("dml.models",),
    ),
    "others": _Part(
        "Other packages",
        "Trackers, training and the commands.",
        ("dml.tracking", "dml.training", "dml.cli", "dml"),
    ),
}
# Names without an `__all__` that users need besides those that configs name by `_target_`.
_FURTHER = (
    "dml.data.image_index.ImageIndex",
    "dml.data.loaders.eval_batches",
    "dml.data.loaders.train_batches",
    "dml.data.protocol_splits.mlrc_folds",
    "dml.data.samplers.BalancedBatches",
    "dml.data.samplers.ClassStreamBatches",
    "dml.data.samplers.RandomBatches",
    "dml.data.transforms.eval_transform",
    "dml.data.transforms.train_transform",
    "dml.losses.pml_adapter.PMLAdapter",
    "dml.losses.triplet.AllTripletsLoss",
    "dml.training.interfaces.Method",
    "dml.models.backbones.Backbone",
    "dml.models.embedder.Embedder",
)


def make_python_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    entries: dict[str, list[str]] = {key: [] for key in _PARTS}
    for name in list_public_names():
        entries[_find_part(name)].append(name)
    pages = {}
    for key, part in _PARTS.items():
        rows = [(_link(_written(name), part.title), _summarize(name)) for name in entries[key]]
        pages[f"reference/python/{key}.md"] = render(
            "python.md",
            title=part.title,
            text=part.text,
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
        names += [f"{package}.{name}" for name in _read_all(path)]
    names += sorted(_list_targets()) + list(_FURTHER)
    seen: dict[int, str] = {}
    for name in names:
        seen.setdefault(id(get_object(name)), name)
    return tuple(seen.values())


def _read_all(path: Path) -> list[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _list_targets() -> set[str]:
    """Returns the `_target_` of the configs that are in this package."""
    found: set[str] = set()
    for path in CONFIGS.rglob("*.yaml"):
        _collect(yaml.safe_load(path.read_text(encoding="utf-8")), found)
    return {name for name in found if name.startswith("dml.")}


def _collect(node: object, found: set[str]) -> None:
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "_target_" and isinstance(value, str):
            found.add(value)
        _collect(value, found)


def _find_part(name: str) -> str:
    """Returns the part with the longest prefix of a name."""
    lengths = {
        key: max((len(one) for one in part.prefixes if name.startswith(f"{one}.")), default=-1)
        for key, part in _PARTS.items()
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
