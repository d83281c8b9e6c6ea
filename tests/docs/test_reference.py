"""The reference explains every option, and lists every public name."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from hydra.utils import get_object

import dml

REFERENCE = Path(__file__).parents[2] / "docs/reference"
ENTRIES = {
    name: path.name
    for path in (REFERENCE / "python").glob("*.md")
    for name in re.findall(r"^::: (\S+)$", path.read_text(encoding="utf-8"), re.M)
}


def test_every_option_has_a_meaning():
    page = (REFERENCE / "options.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| .*\|  \|$", page, re.M)
    assert found == [], "explain it in its config, or in scripts/docs/texts/options.yaml"


def test_every_public_name_is_listed_and_documented():
    packages = [module.name for module in pkgutil.walk_packages(dml.__path__, "dml.")]
    names = [f"{module}.{name}" for name, module in dml.FOR_USERS.items()]
    for package in packages:
        folder = Path(dml.__file__).parent.joinpath(*package.split(".")[1:])
        if folder.is_dir() and "__all__" in (folder / "__init__.py").read_text(encoding="utf-8"):
            names += [f"{package}.{one}" for one in importlib.import_module(package).__all__]
    listed = {id(get_object(name)) for name in ENTRIES}
    assert len(names) > 40
    assert [name for name in names if id(get_object(name)) not in listed] == []
    documented = [get_object(name) for name in ENTRIES]
    assert [one for one in documented if callable(one) and not inspect.getdoc(one)] == []
