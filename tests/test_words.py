import pytest

from dml.config.command_line import is_multirun, reorder_flags
from dml.core.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("seed=0 -m loss=ms,c1", "-m seed=0 loss=ms,c1"),
        ("seed=0 --cfg job loss=ms", "--cfg job seed=0 loss=ms"),
        ("~search --config-dir here seed=1", "--config-dir here ~search seed=1"),
        ("foo -m seed=1", "-m foo seed=1"),
        ("seed=1 --info seed=2", "--info seed=1 seed=2"),
    ],
)
def test_flags_come_first(typed, expected):
    assert reorder_flags(typed.split()) == expected.split()
    assert reorder_flags(expected.split()) == expected.split()


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("--foo", "--foo: no such flag"),
        ("--mutlirun seed=1", "--mutlirun: no such flag; did you mean '--multirun'?"),
        ("-m --cfg job", "--multirun and --cfg do not go together"),
    ],
)
def test_flags_that_cannot_be_meant(typed, problem):
    with pytest.raises(ConfigError) as caught:
        reorder_flags(typed.split())
    assert caught.value.problems[0].startswith(problem)


def test_a_grid_is_asked_for():
    assert is_multirun(["seed=1", "-m"])
    assert is_multirun(["--multi"])
    assert not is_multirun(["--cfg", "job", "multirun=1"])
