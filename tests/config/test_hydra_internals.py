"""Names of Hydra that are not public: a version without them is named here, not by a traceback."""

import re
from pathlib import Path
from pkgutil import resolve_name

import hydra
import pytest

ROOT = Path(__file__).resolve().parents[2]
USER = "dml/config/hydra_internals.py"
NAMES = [
    "hydra._internal.config_loader_impl.ConfigLoaderImpl._apply_overrides_to_config",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper",
    "hydra._internal.utils.get_args_parser",
    "hydra.core.utils.JobReturn._return_value",
]


@pytest.mark.parametrize("name", NAMES)
def test_hydra_has_the_name(name):
    try:
        resolve_name(name)
    except (ImportError, AttributeError):
        advice = f"change {USER}, or exclude this version in pyproject.toml"
        pytest.fail(f"Hydra {hydra.__version__} has no {name}; {advice}")


def test_only_one_module_uses_these_names():
    sources = [*ROOT.glob("dml/**/*.py"), *ROOT.glob("hydra_plugins/**/*.py")]
    internal = re.compile(r"hydra\._internal|\b_return_value\b|\b_apply_overrides_to_config\b")
    users = [path for path in sources if internal.search(path.read_text())]
    assert users == [ROOT / USER]
    for module in re.findall(r"hydra\._internal[\w.]*", users[0].read_text()):
        assert any(f"{name}.".startswith(f"{module}.") for name in NAMES), module


def test_flags_are_parsed_as_by_hydra():
    from argparse import ArgumentError

    from dml.config.hydra_internals import parse_flags

    parse_flags(["-m", "--cfg", "job", "--config-dir=here"])
    with pytest.raises(ArgumentError, match="invalid choice: 'jobs'"):
        parse_flags(["--cfg", "jobs"])


def test_the_target_of_the_basic_sweeper():
    from hydra import compose, initialize_config_dir

    from dml.config.hydra_internals import BASIC_SWEEPER
    from dml.core.installation import CONFIGS

    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = compose("train", ["hydra/sweeper=basic"], return_hydra_config=True)
    assert cfg.hydra.sweeper._target_ == BASIC_SWEEPER
