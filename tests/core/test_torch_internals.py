"""Names of PyTorch that are not public: a version without them is named, not by a traceback."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
USER = "dml/core/torch_internals.py"
NAMES = [
    "torch.nn.modules.batchnorm._BatchNorm",
    "torch._disable_dynamo",
    "torch._foreach_sub",
    "torch._foreach_add_",
]


@pytest.mark.parametrize("name", NAMES)
def test_torch_has_the_name(name):
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        advice = f"change {USER}, or exclude this version in pyproject.toml"
        pytest.fail(f"torch {torch.__version__} has no {name}; {advice}")


def test_only_one_module_uses_such_names():
    internal = re.compile(r"torch(\.\w+)*\._[a-z]\w*\b|from torch[\w.]* import .*\b_\w+")
    sources = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("hydra_plugins/**/*.py")]
    users = [path for path in sources if internal.search(path.read_text(encoding="utf-8"))]
    assert users == [ROOT / USER]


def test_differences_are_added_as_written():
    from dml.core.torch_internals import add_differences

    shapes = [(3, 4), (5,), ()]
    sums, minuends, subtrahends = ([torch.randn(s) for s in shapes] for _ in range(3))
    rows = zip(sums, minuends, subtrahends, strict=True)
    expected = [total + (first - second) * 0.3 for total, first, second in rows]
    add_differences(sums, minuends, subtrahends, 0.3)
    for total, wanted in zip(sums, expected, strict=True):
        torch.testing.assert_close(total, wanted)


def test_a_function_is_not_compiled():
    from dml.core.torch_internals import not_compiled

    def compiling():
        return torch.compiler.is_compiling()

    def outer():
        return not_compiled(compiling)(), compiling()

    assert torch.compile(outer, backend="eager")() == (False, True)
