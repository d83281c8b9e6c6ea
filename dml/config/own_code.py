"""The user's own code: which files a run's classes come from, and a hash of each.

A config names classes by `_target_`. Their modules, and all that these import, are found without
running any of them: files as Python finds them, imports from the source, also those inside
functions. Own are the files that belong neither to Python, nor to this package, nor to an installed
package; an editable installation consists of own files. The hashes are part of a run's identity, so
that an edited loss is a run of its own.

Comments, docstrings and formatting do not change a hash. Not seen are modules whose names are
computed, and files that are not modules, such as a table that a loss reads.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions, version
from importlib.util import resolve_name
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

NODE = "code"  # of the config: module → hash
LENGTH = 16  # hex digits of a hash
# A tracker and the description of an experiment do not change results.
WITHOUT_RESULT = ("tracking", "experiment", NODE)
OF_PYTHON = ("stdlib", "platstdlib")
INSTALLED = {"site-packages", "dist-packages"}  # folders
# Even where they are installed from a clone: their revision or version is in every summary.
RECORDED = {"dml", "hydra_plugins", "hydra", "torch", "torchvision", "numpy"}
IGNORED_FIELDS = {"ctx", "kind", "type_comment"}  # of a syntax tree
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class OwnCode:
    """The code of a config.

    Attributes:
        hashes: own module → hash of its source, sorted.
        packages: modules at the top level of installed packages that are named or imported.
        edited: own files that were edited after this process had imported them.
    """

    hashes: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    edited: list[str] = field(default_factory=list)


def record_own_code(cfg: DictConfig) -> list[str]:
    """Writes the hashes of the user's own code to the node `code` of a composed config.

    Returns:
        Notes for the user. A config that cannot be resolved stays as it is: `check` reports it.
    """
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException:
        return []
    code = find_own_code(plain)
    with read_write(cfg), open_dict(cfg):
        cfg.pop(NODE, None)
        if code.hashes:
            cfg[NODE] = code.hashes
    return [
        f"{file} has changed since this process imported it, and runs as it was imported; start "
        f"Python anew, or reload it by importlib.reload"
        for file in code.edited
    ]


def find_own_code(plain: dict[str, Any]) -> OwnCode:
    """Returns the code of a resolved config, in plain types."""
    importlib.invalidate_caches()  # a file may be younger than the list of its folder
    nodes = {name: node for name, node in plain.items() if name not in WITHOUT_RESULT}
    if not nodes.get("search"):
        nodes.pop("space", None)
    code = OwnCode()
    waiting: list[str] = []
    for target in find_targets(nodes):
        waiting += _module_and_parents(target, code)
    while waiting:
        module = waiting.pop()
        if module in code.hashes:
            continue
        code.hashes[module] = _remember(module, code)
        for imported in _find_imports(module):
            waiting += _module_and_parents(imported, code)
    code.hashes = dict(sorted(code.hashes.items()))
    return code


def find_changed(hashes: dict[str, str]) -> list[str]:
    """Returns the files, as seen from the current folder, that differ from the hashes of a run.

    Modules that do not exist here, as beside an exported network, are left out.
    """
    importlib.invalidate_caches()
    changed = []
    for module, stored in hashes.items():
        chain = _find_chain(module)
        exists = module == "__main__" or (bool(chain) and chain[-1].name == module)
        if exists and _remember(module, OwnCode()) != stored:
            changed.append(file_of(module))
    return changed


def file_of(module: str) -> str:
    """Returns the file of a module, relative to the current folder if it lies there."""
    origin = _origin(module)
    if origin is None:
        return module
    path, here = Path(origin), Path.cwd()
    if path.is_relative_to(here):
        path = path.relative_to(here)
    return str(path)


def find_file(target: str) -> str:
    """Returns the file, or the installed package, that an import of a dotted name would run first.

    Nothing is imported, parents neither.
    """
    importlib.invalidate_caches()
    name = target.replace(":", ".")
    chain = _find_chain(name)
    for spec in chain:
        if _is_own(spec):
            return file_of(spec.name)
    top = name.partition(".")[0]
    if chain:
        return f"the package {top}"
    here = PathFinder.find_spec(top, [os.getcwd()])  # where commands find the user's classes
    if here is not None and here.origin is not None:
        return os.path.relpath(here.origin)
    return f"{top}, which is not installed here"


def package_versions(plain: dict[str, Any]) -> dict[str, str]:
    """Returns the versions of installed packages that the config names or its own code imports."""
    names = find_own_code(plain).packages - RECORDED
    if not names:
        return {}
    owners = packages_distributions()
    distributions: set[str] = set()
    for name in names:
        distributions.update(owners.get(name, ()))
    return {owner: version(owner) for owner in sorted(distributions)}


def find_targets(node: Any) -> Iterator[str]:
    """Yields the dotted names of classes and functions in nested nodes, searches included."""
    if isinstance(node, list):
        for item in node:
            yield from find_targets(item)
    if not isinstance(node, dict):
        return
    target = str(node.get("_target_"))
    if target.startswith("hydra.utils."):  # get_class and others take the name as an argument
        yield from _find_texts(node)
        return
    for key, value in node.items():
        if key == "_target_":
            yield from _find_texts(value)
        else:
            yield from find_targets(value)


def _find_texts(value: Any) -> Iterator[str]:
    """Yields all texts in nested lists and mappings: of a search over classes, all choices."""
    if isinstance(value, str):
        yield value.replace(":", ".")
    elif isinstance(value, dict):
        yield from _find_texts(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _find_texts(item)


def hash_source(content: bytes) -> str:
    """Returns a hash of Python source, without comments, docstrings and formatting.

    Of what is not Python, such as a compiled module: of the bytes. It is equal for all versions of
    Python, unlike `ast.dump`.
    """
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        content = "".join(_describe(ast.parse(content))).encode()
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def _describe(node: Any) -> Iterator[str]:
    """Yields the parts of a text that stands for a syntax tree."""
    if isinstance(node, list):
        for item in node:
            yield from _describe(item)
            yield ","
        return
    if not isinstance(node, ast.AST):
        yield repr(node)
        return
    yield f"{type(node).__name__}("
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, WITH_DOCSTRING):
            value = value[ast.get_docstring(node, clean=False) is not None :]
        if name in IGNORED_FIELDS or value is None or value == []:  # later Pythons have more fields
            continue
        yield f"{name}="
        yield from _describe(value)
    yield ")"


def _find_chain(name: str) -> list[ModuleSpec]:
    """Returns the package, the subpackages and the module at the beginning of a dotted name.

    `a.b.Class.method` → those of `a` and `a.b`. Nothing is imported, parents neither.
    """
    chain: list[ModuleSpec] = []
    folders: list[str] | None = None
    for full in accumulate(name.split("."), "{}.{}".format):
        spec = _find_spec(full, folders)
        if spec is None:
            break
        chain.append(spec)
        if spec.submodule_search_locations is None:
            break
        folders = list(spec.submodule_search_locations)
    return chain


def _find_spec(full: str, folders: list[str] | None) -> ModuleSpec | None:
    """Returns the spec of a module in the folders of its parent; None if there is none."""
    for finder in sys.meta_path:
        with suppress(Exception):  # nested packages without __init__.py need their parents imported
            spec = finder.find_spec(full, folders)
            if spec is not None:
                return spec
    part = full.rpartition(".")[2]
    candidates = [f"{folder}/{part}" for folder in folders or ()]
    packages = list(filter(os.path.isdir, candidates))
    if not packages:
        return None
    spec = ModuleSpec(full, None, is_package=True)
    spec.submodule_search_locations = packages
    return spec


def _module_and_parents(name: str, code: OwnCode) -> list[str]:
    """Returns the own modules that an import of a dotted name runs; notes installed packages."""
    top = name.partition(".")[0]
    if top == "__main__":
        return ["__main__"] if _hash_main() else []
    if top in RECORDED:
        return []
    chain = _find_chain(name)
    modules = [spec.name for spec in chain if _is_own(spec)]
    if chain and not modules and top not in sys.stdlib_module_names:
        code.packages.add(top)
    return modules


def _is_own(spec: ModuleSpec) -> bool:
    """Returns whether a module is a file of the user."""
    if spec.origin is None or not spec.has_location:
        return False
    path = Path(spec.origin)
    if INSTALLED & set(path.parts):
        return False
    return not any(path.is_relative_to(sysconfig.get_path(kind)) for kind in OF_PYTHON)


def _origin(module: str) -> str | None:
    """Returns the file of a module; None if it is not in a file."""
    if module == "__main__":
        return getattr(sys.modules["__main__"], "__file__", None)
    chain = _find_chain(module)
    return chain[-1].origin if chain else None


def _read(module: str) -> bytes:
    """Returns the source of an own module, also of one in an archive; empty without a file."""
    origin = _origin(module)
    if origin is None:
        return b""
    loader = None if module == "__main__" else _find_chain(module)[-1].loader
    if loader is not None and hasattr(loader, "get_data"):
        return loader.get_data(origin)
    return Path(origin).read_bytes()


# By module and file: the module's spec when it was imported, and the hash that its file had.
_imported: dict[tuple[str, str | None], tuple[ModuleSpec | None, str]] = {}


def _remember(module: str, code: OwnCode) -> str:
    """Returns the hash of the code that this process runs for a module.

    That is the file's, unless the file was edited since an earlier run of this process imported it.
    """
    if module == "__main__":
        return _hash_main()
    key, now = (module, _origin(module)), hash_source(_read(module))
    spec = getattr(sys.modules.get(module), "__spec__", None)
    before, known = _imported.get(key, (None, now))
    reloaded = before is not None and before is not spec
    if spec is None or reloaded:
        known = now
    _imported[key] = spec, known
    if known != now:
        code.edited.append(file_of(module))
    return known


def _hash_main() -> str:
    """Returns the hash of the program itself, or of the classes of a notebook; may be empty."""
    main = sys.modules["__main__"]
    if getattr(main, "__file__", None):
        return hash_source(_read("__main__"))
    texts: list[str] = []
    for value in vars(main).values():
        if getattr(value, "__module__", None) == "__main__":
            texts += _describe_object(value)
    if not texts:
        return ""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:LENGTH]


def _describe_object(value: Any) -> Iterator[str]:
    """Yields a text for each function of a class, or for a function, from its compiled code."""
    functions = vars(value).values() if isinstance(value, type) else [value]
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            yield f"{function.__qualname__} {_describe_compiled(code)}"


def _describe_compiled(code: CodeType) -> str:
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_describe_compiled(constant))
        else:
            constants.append(repr(constant))
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _find_imports(module: str) -> Iterator[str]:
    """Yields the dotted names of what a module may import; names that are no modules too."""
    try:
        tree = ast.parse(_read(module))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    package = _package_of(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            source = _absolute("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield f"{source}.{alias.name}".removeprefix(".")
        elif isinstance(node, ast.Call):
            yield from _find_call(node, package)


def _package_of(module: str) -> str:
    """Returns the package to which the relative imports of a module refer; may be empty."""
    origin = _origin(module) or ""
    if os.path.basename(origin).startswith("__init__."):
        return module
    return module.rpartition(".")[0]


def _find_call(node: ast.Call, package: str) -> Iterator[str]:
    """Yields the name in `import_module("name")` and `__import__("name")`."""
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name not in ("import_module", "__import__") or not node.args:
        return
    argument = node.args[0]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield _absolute(argument.value, package)


def _absolute(name: str, package: str) -> str:
    """Returns the absolute name of a relative import; the name itself outside of a package."""
    try:
        return resolve_name(name, package or None)
    except (ImportError, ValueError):
        return name.lstrip(".")
