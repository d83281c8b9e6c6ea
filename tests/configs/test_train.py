"""A config comes from few files, each of which says something of its own."""

import re
from itertools import combinations

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from dml.config.identity import flatten
from dml.core.installation import CONFIGS


def read_files(*words: str) -> dict[str, list]:
    """Returns the values that files set, by option, in the order of precedence."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        entries = loader.compute_defaults_list("train", list(words), RunMode.RUN).defaults
    paths = [(CONFIGS / f"{entry.config_path}.yaml", entry.package) for entry in entries]
    paths = [(path, package) for path, package in paths if path.is_file()]
    values: dict[str, list] = {"files": paths}
    for path, package in paths:
        content = yaml.safe_load(path.read_text())
        content.pop("defaults", None)
        prefix = "" if package in (None, "", "_global_") else f"{package}."
        for name, value in flatten(content).items():
            values.setdefault(f"{prefix}{name}", []).append(value)
    return values


def test_every_file_opens_with_its_command():
    for path in CONFIGS.glob("*/*.yaml"):
        choice = f"{path.parent.name}={path.stem}"
        if path.parent.name == "recipe":
            choice = re.sub(r"recipe=(.*)_(\w+)", r"protocol=\1 data=\2", choice)
        first = path.read_text().removeprefix("# @package _global_\n").splitlines()[0]
        assert first.startswith("# python train.py ")
        assert choice in first


@pytest.mark.parametrize("protocol", ["traditional", "mlrc", "pfml", "metrix", "conventional"])
@pytest.mark.parametrize("loss", ["mfcwms", "contrastive"])
def test_nine_files_and_no_value_twice(protocol, loss):
    values = read_files(f"loss={loss}", "data=cub", f"protocol={protocol}")
    assert len(values.pop("files")) <= 9
    assert not [
        name for name, them in values.items() if any(a == b for a, b in combinations(them, 2))
    ]
