"""Private names of libraries: used in one module each; a version without them is named."""

import importlib.metadata
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Library(NamedTuple):
    """Which private names of a library are used, where, and what finds them in a source."""

    package: str
    user: str | None
    names: tuple[str, ...]
    pattern: str


LIBRARIES = {
    "hydra": Library(
        "hydra-core",
        "dml/config/hydra_internals.py",
        (
            "hydra._internal.config_loader_impl.ConfigLoaderImpl._apply_overrides_to_config",
            "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
            "hydra._internal.utils.get_args_parser",
            "hydra.core.utils.JobReturn._return_value",
        ),
        r"hydra\._internal|\b_return_value\b|\b_apply_overrides_to_config\b",
    ),
    "torch": Library(
        "torch",
        "dml/core/torch_internals.py",
        (
            "torch.nn.modules.batchnorm._BatchNorm",
            "torch._disable_dynamo",
            "torch._foreach_sub",
            "torch._foreach_add_",
        ),
        r"\btorch(\.\w+)*\._[a-z]\w*\b|from torch[\w.]* import .*\b_\w+",
    ),
    "timm": Library(
        "timm",
        "dml/core/timm_records.py",
        ("timm.models._hub.load_model_config_from_path",),
        r"\btimm(\.\w+)*\._[a-z]\w*\b",
    ),
    "optuna": Library("optuna", None, (), r"\boptuna\w*\._\w+|\._(trial|study)_id\b"),
    "pytorch_metric_learning": Library(
        "pytorch-metric-learning", None, (), r"\._sub_loss_names\b|pytorch_metric_learning[\w.]*\._"
    ),
}
NAMES = [(key, name) for key, library in LIBRARIES.items() for name in library.names]


@pytest.mark.parametrize(("key", "name"), NAMES)
def test_the_library_has_the_name(key, name):
    library = LIBRARIES[key]
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        version = importlib.metadata.version(library.package)
        advice = f"change {library.user}, or exclude this version in pyproject.toml"
        pytest.fail(f"{library.package} {version} has no {name}; {advice}")


@pytest.mark.parametrize("key", LIBRARIES)
def test_at_most_one_module_uses_private_names(key):
    library = LIBRARIES[key]
    sources = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("hydra_plugins/**/*.py")]
    users = []
    for path in sources:
        if re.search(library.pattern, path.read_text(encoding="utf-8")):
            users.append(path.relative_to(ROOT).as_posix())
    assert users == ([] if library.user is None else [library.user])
