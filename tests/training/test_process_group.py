"""Two processes do what one does: steps, whole runs, checkpoints, stopping, and being killed."""

import json
from pathlib import Path

import pytest

from tests.training.distributed_runs import RUNS, history, runs, start, stopped
from tests.training.distributed_steps import CASES, differences
from tests.training.processes import in_two_processes

# Steps in float64: two processes add up the same numbers in another order. The worst seen is 2e-13.
TOLERANCE = 1e-10
OF_RUNS = 2.5e-3  # of scores: two of 896 images whose neighbors are at almost the same distance


def steps_and_runs():
    return {**differences(), **runs()}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes find, and the folder in which they do so."""
    place = tmp_path_factory.mktemp("two")
    assert stopped(place / "begun_alone", *RUNS["ccp"]) == 143
    return place, in_two_processes(steps_and_runs, place)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The histories of the same runs by one process."""
    place = tmp_path_factory.mktemp("one")
    return {name: history(start(place, *options)) for name, options in RUNS.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_two_processes_is_a_step_of_one(together, case):
    for found in together[1]:
        worst, where, _ = found[case]
        assert worst < (0.02 if case == "bf16" else TOLERANCE), where


def assert_alike(rows, expected):
    assert len(rows) == len(expected)
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=OF_RUNS, abs=OF_RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_two_processes_is_a_run_of_one(together, alone, name):
    folder = Path(together[1][0][f"run {name}"])
    assert_alike(history(folder), alone[name])
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["processes"] == 2
    pictures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert pictures == (
        {"embedding_map", "learning_curve", "neighbors", "stages"} if name == "ccp" else set()
    )
    assert (summary["concatenated"] is not None) == (name == "mlrc")


def test_only_the_first_process_writes_and_prints(together):
    place, _ = together
    assert "MAP@R" in (place / "0.log").read_text()
    assert "MAP@R" not in (place / "1.log").read_text()


def test_two_processes_continue_the_run_of_one(together, alone):
    assert_alike(history(Path(together[1][0]["continued"])), alone["ccp"])


def test_an_error_of_one_ends_the_run_of_both(together):
    first, second = (found["broken"] for found in together[1])
    assert second == "data: the second process cannot read it"
    assert first


def test_a_signal_to_one_stops_both_and_one_continues(together, alone):
    place, found = together
    assert [one["status"] for one in found] == [143, 143]
    folder = start(place / "begun_together", *RUNS["ccp"])
    assert_alike(history(folder), alone["ccp"])
