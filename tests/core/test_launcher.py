"""The launcher's environment variables, also those that an earlier launch has left."""

import pytest

from dml.core.errors import UserError
from dml.core.launcher import Launch, check_address, describe_wait, read_launch

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OTHERS = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SUBMITIT_EXECUTOR")


@pytest.fixture
def environment(monkeypatch):
    """Sets these variables, and no others of a launcher."""

    def set_all(**values):
        for name in (*NAMES, *OTHERS):
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_all


OF_FOUR = {"RANK": "3", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("values", "launch"),
    [
        ({}, Launch()),
        ({"RANK": "", "WORLD_SIZE": ""}, Launch()),
        ({"RANK": "0", "WORLD_SIZE": ""}, Launch()),
        ({"WORLD_SIZE": "4"}, Launch()),
        (OF_FOUR, Launch(3, 4, 3, 4)),
        (OF_FOUR | {"LOCAL_RANK": "", "LOCAL_WORLD_SIZE": ""}, Launch(3, 4, 3, 4)),
        (OF_FOUR | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Launch(3, 4, 1, 2)),
    ],
)
def test_ranks(environment, values, launch):
    environment(**values)
    assert read_launch() == launch


@pytest.mark.parametrize(
    "values",
    [
        {"RANK": "x", "WORLD_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "four"},
        {"RANK": "0", "WORLD_SIZE": "0"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "a"},
    ],
)
def test_wrong_variables_are_named_with_the_remedy(environment, values):
    environment(**values)
    with pytest.raises(UserError, match=r"^(LOCAL_)?(RANK|WORLD_SIZE)=.*unset RANK and WORLD_SIZE"):
        read_launch()


def test_a_process_says_at_once_for_what_it_waits(environment):
    left = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
    environment(**left)
    waiting = describe_wait()
    assert waiting.startswith("waiting for 3 other processes at 127.0.0.1:29512")
    environment(**left | {"WORLD_SIZE": "2"})
    assert describe_wait().startswith("waiting for 1 other process at ")
    for started_by in ("TORCHELASTIC_RUN_ID", "SUBMITIT_EXECUTOR"):
        environment(**left, **{started_by: "1"})
        assert describe_wait() is None
    environment()
    assert describe_wait() is None


def test_the_error_of_a_wrong_variable_is_one_line(environment, capfd):
    from tests import commands

    environment(RANK="0", WORLD_SIZE="abc")
    assert commands.train(["data=digits"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "WORLD_SIZE=abc" in line] == lines


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_an_address_that_is_missing_is_named(environment, missing):
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    environment(RANK="0", WORLD_SIZE="2", **address)
    check_address()
    del address[missing]
    environment(RANK="0", WORLD_SIZE="2", **address)
    with pytest.raises(UserError, match=f"^{missing}: not set, where WORLD_SIZE is 2; .*torchrun"):
        check_address()
