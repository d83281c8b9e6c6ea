import pytest

from dml.config.command_line import find_ignored_words, is_multirun, reorder_flags
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
        ("-m --cfg job", "--multirun and --cfg exclude each other"),
    ],
)
def test_invalid_flags(typed, problem):
    with pytest.raises(ConfigError) as caught:
        reorder_flags(typed.split())
    assert caught.value.problems[0].startswith(problem)


def test_a_multirun_is_recognized():
    assert is_multirun(["seed=1", "-m"])
    assert is_multirun(["--multi"])
    assert is_multirun(["experiment=mft_table1"])
    assert not is_multirun(["--cfg", "job", "multirun=1"])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nope", "nope is not a list; write [file://<folder>]"),
        ("[file:///no/such]", "file:///no/such is not a folder"),
        ("[http://x]", "http://x is neither file://<folder> nor pkg://<package>"),
    ],
)
def test_invalid_search_path(value, problem):
    assert find_ignored_words([f"hydra.searchpath={value}"]) == [f"hydra.searchpath: {problem}"]


def test_a_sweep_without_a_value():
    (found,) = find_ignored_words(["-m", "seed=range(3,0)", "loss=ms,c1", "~search"])
    assert found == "seed: range(3,0) has no value, so the grid has no run"
