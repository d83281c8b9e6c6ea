"""Damaged files in a run folder: the run still gives its result, or ends with one clear line."""

import re

import pytest
from omegaconf import OmegaConf

from dml.core.errors import UserError
from dml.runs.experiment import resume
from tests.system.finished_runs import results_of, start

JOB = "checkpoints/repeat0-fold0"
CHECKPOINTS = [f"{JOB}/{name}.pt" for name in ("last", "best")]
DAMAGES = {
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "gone": lambda path: path.unlink(),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}
CASES = [
    *(("history.csv", "binary"), ("history.csv", "gone"), ("dataset.json", "half")),
    *((CHECKPOINTS[0], damage) for damage in DAMAGES),
    *((CHECKPOINTS[1], "half"), (CHECKPOINTS[1], "gone")),
]
REMEDY = "overwrite=true|delete it|not a run folder|repair that|restores it|cannot be read"


def error_of(work):
    """Calls `work`; returns the message of its error, which is one line with a remedy, or ""."""
    try:
        work()
    except UserError as error:
        message = str(error)
        assert re.search(REMEDY, message), message
        assert len(message.splitlines()) == 1
        return message
    return ""


@pytest.mark.parametrize(("name", "damage"), CASES)
@pytest.mark.promise(
    "guides/resume.md",
    "a checkpoint of an unfinished run is damaged: one line names it",
)
def test_a_killed_run_with_a_damaged_file(restored, undisturbed, name, damage):
    cfg, folder = restored("killed")
    DAMAGES[damage](folder.path / name)
    message = error_of(lambda: start(cfg))
    if name == CHECKPOINTS[0]:
        assert ("last.pt is not a complete checkpoint" in message) == (damage != "gone")
    if message:
        start(OmegaConf.merge(cfg, {"overwrite": True}))
    assert results_of(folder) == undisturbed


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["summary.json", f"{JOB}/result.json"])
def test_a_finished_run_with_a_damaged_result(restored, undisturbed, name, damage):
    cfg, folder = restored("finished")
    DAMAGES[damage](folder.path / name)
    if name != "summary.json":
        folder.summary.unlink()
    message = error_of(lambda: start(cfg))
    assert bool(message) == (damage != "gone")
    assert message or results_of(folder) == undisturbed


def test_a_history_with_a_gap_is_refused(restored):
    cfg, folder = restored("killed")
    folder.history.write_text("".join(folder.history.read_text().splitlines(True)[:-1]))
    with pytest.raises(UserError, match=r"history\.csv is damaged \(2 of 3 rows"):
        start(cfg)


@pytest.mark.parametrize("damage", DAMAGES)
def test_resume_needs_a_readable_config(restored, damage):
    _, folder = restored("killed")
    DAMAGES[damage](folder.config)
    assert error_of(lambda: resume(folder.path))
