"""Lists of names are written once: no other module spells one of them out."""

import ast
from pathlib import Path

import pytest

from dml.core import option_values

PACKAGE = Path(option_values.__file__).parents[1]
LISTS = {
    name: set(value)
    for name, value in vars(option_values).items()
    if name.isupper() and len(value) > 2
}


def spelled_out(path: Path) -> set[str]:
    """The lists whose names all stand in one tuple, list, set or dictionary of a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        words = {item.value for item in items if isinstance(item, ast.Constant)}
        found |= {name for name, names in LISTS.items() if names <= words}
    return found


@pytest.mark.parametrize("name", sorted(LISTS))
def test_a_list_is_written_once(name):
    files = [path for path in PACKAGE.rglob("*.py") if name in spelled_out(path)]
    assert [path.name for path in files] == ["option_values.py"]
