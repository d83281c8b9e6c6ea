"""A variable that slows down NumPy's products is named; nothing is said of one that does not."""

import os

import pytest

from dml.cli.machine import products
from dml.cli.machine.products import VARIABLE, measure_speed, try_products
from dml.core.errors import UserError


@pytest.fixture
def speeds(monkeypatch):
    """Speeds with the variable and without it, instead of measured ones; an error is raised."""
    values = {}

    def answer(environment):
        speed = values["set" if VARIABLE in environment else "unset"]
        if isinstance(speed, Exception):
            raise speed
        return speed

    monkeypatch.setattr(products, "_speed_in_a_process", answer)
    monkeypatch.setenv(VARIABLE, "Haswell")
    return values


def test_a_product_in_a_process_of_its_own(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    before = dict(os.environ)
    outcome = try_products()
    assert outcome.works
    assert outcome.result.startswith("NumPy ")
    assert outcome.result.endswith(" GFLOP/s on one core")
    assert os.environ == before


def test_a_variable_that_halves_the_speed_is_a_note(speeds):
    speeds.update(set=120.0, unset=244.4)
    outcome = try_products()
    assert outcome.state == "note"
    expected = "NumPy 120 GFLOP/s on one core with OPENBLAS_CORETYPE=Haswell, 244 without it"
    assert outcome.result == expected
    assert outcome.remedy == "unset OPENBLAS_CORETYPE"


@pytest.mark.parametrize("unset", [60.0, 120.0, 130.0])
def test_a_variable_that_does_no_harm_stays(speeds, unset):
    speeds.update(set=120.0, unset=unset)
    outcome = try_products()
    assert outcome.state == "ok"
    assert outcome.result == "NumPy 120 GFLOP/s on one core with OPENBLAS_CORETYPE=Haswell"


def test_a_kernel_that_is_wrong_without_the_variable_is_not_advised(speeds):
    speeds.update(set=120.0, unset=UserError("the error of a float32 product is 3e-01"))
    outcome = try_products()
    assert outcome.state == "ok"
    assert outcome.result.endswith("; without it: the error of a float32 product is 3e-01")


def test_a_wrong_product_is_an_error(monkeypatch):
    assert measure_speed() > 0
    monkeypatch.setattr(products, "TOLERANCE", 1e-12)
    with pytest.raises(UserError, match=r"^the error of a float32 product is \d"):
        measure_speed()


def test_the_last_line_of_a_process_that_fails_is_the_error(monkeypatch):
    monkeypatch.setattr(products.sys, "executable", "false")
    with pytest.raises(UserError, match=r"^exit status 1$"):
        products._speed_in_a_process({"PATH": os.environ["PATH"]})
