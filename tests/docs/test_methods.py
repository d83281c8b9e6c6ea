"""Every method has a page, and the losses it names are those that the method takes."""

import re
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.methods.options import require_form
from dml.methods.reference_losses import prepare_for_references
from tests.configs.test_loss import NAMES as LOSSES
from tests.configs.test_loss import build, load

ROOT = Path(__file__).parents[2]


def read_line(method: str, label: str) -> str:
    page = (ROOT / f"docs/methods/{method}.md").read_text(encoding="utf-8")
    found = re.search(rf"^- \*\*{label}:\*\* (.+)$", page, re.M)
    assert found, (method, label)
    return found[1]


@pytest.mark.parametrize(
    ("method", "proxies"), [("metrix", None), ("imix", False), ("proxy_synthesis", True)]
)
def test_losses_of_mixing_methods(method, proxies):
    def takes(name: str) -> bool:
        try:
            require_form(build(load(name)), method, proxies)
        except UserError:
            return False
        return True

    named = re.findall(r"\[`(\w+)`\]", read_line(method, "Losses"))
    assert sorted(named) == [name for name in LOSSES if takes(name)]


def test_losses_of_methods_with_references():
    """The pages name the exceptions among the losses of pairs."""

    def takes(name: str) -> bool:
        config = load(name)
        try:
            prepare_for_references(build(config), config.loss.get("miner"), 16, "ccp")
        except UserError:
            return False
        return True

    pairs = {name for name in LOSSES if load(name).loss.batch_kind == "pair"}
    exceptions = set(re.findall(r"`(\w+)`", read_line("ccp", "Losses")))
    assert read_line("ccp", "Losses") == read_line("xbm", "Losses")
    assert {name for name in LOSSES if takes(name)} == pairs - exceptions
