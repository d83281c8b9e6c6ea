"""Every method has a page, and the losses it names are those that the method takes."""

import re
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from torch import nn

from dml.core.errors import UserError
from dml.methods.chance_constrained import ChanceConstrained
from dml.methods.cross_batch import CrossBatchMemory
from dml.methods.options import require_form
from dml.training.interfaces import Method
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


def build_ccp(loss: nn.Module, miner: Any) -> Method:
    return ChanceConstrained(loss, miner, 4, 16)


def build_xbm(loss: nn.Module, miner: Any) -> Method:
    return CrossBatchMemory(loss, miner, 16)


@pytest.mark.parametrize(("method", "make"), [("ccp", build_ccp), ("xbm", build_xbm)])
def test_losses_of_methods_with_references(method, make):
    """The pages name the exceptions among the losses of pairs."""

    def takes(name: str) -> bool:
        config = load(name).loss
        try:
            make(build(load(name)), instantiate(config.get("miner")))
        except UserError:
            return False
        return True

    pairs = {name for name in LOSSES if load(name).loss.batch_kind == "pair"}
    exceptions = set(re.findall(r"`(\w+)`", read_line(method, "Losses").partition(";")[0]))
    assert {name for name in LOSSES if takes(name)} == pairs - exceptions
