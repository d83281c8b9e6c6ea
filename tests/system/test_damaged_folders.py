"""Damaged files in a run folder: the run still gives its result, or ends with one clear line."""

import random
import shutil
from itertools import product

import pytest
import torch
from omegaconf import OmegaConf

from dml.core.errors import UserError
from dml.runs.experiment import resume
from tests.system.file_damage import BINARY, TEXT, damage_content
from tests.system.finished_runs import results_of, start

JOB = "checkpoints/repeat0-fold0"
CHECKPOINTS = [f"{JOB}/{name}.pt" for name in ("last", "previous", "best")]
WRITTEN = ["config.yaml", "history.csv", "run_id", "dataset.json", *CHECKPOINTS]
DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "gone": lambda path: path.unlink(),
}
HALF = {"half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])}
REMEDIES = (
    "overwrite=true",
    "delete it",
    "not a run folder",
    "repair that",
    "restores it",
    "cannot be read",
)


def error_of(work):
    """Calls `work`; returns the message of its error, which is one line with a remedy, or ""."""
    try:
        work()
    except UserError as error:
        message = str(error)
        assert any(remedy in message for remedy in REMEDIES), message
        assert len(message.splitlines()) == 1
        return message
    return ""


@pytest.mark.parametrize(("name", "damage"), [*product(WRITTEN, DAMAGES), (CHECKPOINTS[0], "half")])
def test_a_killed_run_with_a_damaged_file(restored, undisturbed, capsys, name, damage):
    cfg, folder = restored("killed")
    (DAMAGES | HALF)[damage](folder.path / name)
    message = error_of(lambda: start(cfg))
    # A file that is not needed to continue, or has a copy, must not stop the run.
    if damage != "folder" and name in ("config.yaml", "run_id", *CHECKPOINTS[:2]):
        assert not message
    if message:
        start(OmegaConf.merge(cfg, {"overwrite": True}))
    elif name == CHECKPOINTS[0] and damage != "folder":
        said = capsys.readouterr().out.replace("\n", "")
        assert ("last.pt is not a complete checkpoint" in said) == (damage != "gone")
        assert "continuing repeat0-fold0 from epoch 1" in said
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


def test_a_finished_run_without_its_history_gets_its_summary_back(restored, undisturbed):
    cfg, folder = restored("finished")
    folder.summary.unlink()
    folder.history.unlink()
    assert start(cfg)["metrics"] == undisturbed.metrics


def test_a_history_with_a_gap_is_refused(restored):
    cfg, folder = restored("killed")
    folder.history.write_text("".join(folder.history.read_text().splitlines(True)[:-1]))
    with pytest.raises(UserError, match=r"history\.csv is damaged \(2 of the 3 rows"):
        start(cfg)


def test_no_readable_checkpoint_is_refused(restored):
    cfg, folder = restored("killed")
    for name in CHECKPOINTS[:2]:
        (folder.path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"neither last\.pt nor previous\.pt"):
        start(cfg)


def test_best_in_the_place_of_last_is_passed_over(restored, undisturbed, capsys):
    cfg, folder = restored("killed")
    last, _, best = (folder.path / name for name in CHECKPOINTS)
    shutil.copy(best, last)
    start(cfg)
    assert "is not a training state (it has no 'rows')" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert results_of(folder) == undisturbed


@pytest.mark.parametrize("damage", DAMAGES)
def test_resume_needs_a_readable_config(restored, damage):
    _, folder = restored("killed")
    DAMAGES[damage](folder.config)
    assert error_of(lambda: resume(folder.path))


def _leaves(node):
    """Yields every (container, key) of a checkpoint's content."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _leaves(value)


def change_weights(rng, path):
    """Changes a weight of a checkpoint: missing, of another type or shape, NaN.

    Only weights, which may come from another program: the rest is written by this one, and no disk
    changes a value in a file whose checksums fit.
    """
    content = torch.load(path, weights_only=True)
    weights = {name: content[name] for name in ("embedder", "method")}
    node, key = rng.choice([(node, key) for node, key in _leaves(weights) if node is not weights])
    value = node[key]
    others = [None, "x", -1, [], {}, torch.zeros(3), float("nan")]
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        others += [
            torch.full_like(value, float("nan")),
            value.reshape(-1)[:0],
            value.to(torch.int64),
        ]
    node[key] = rng.choice(others)
    if isinstance(node, dict) and rng.random() < 0.3:
        del node[key]
    torch.save(content, path)


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 200), marks=pytest.mark.soak)], ids=["few", "many"]
)
@pytest.mark.parametrize("state", ["killed", "finished"])
def test_random_damage(restored, state, seeds):
    """One line, or a run that continues: some damage leaves a file that could be right."""
    cfg, folder = restored(state)
    whole = folder.path.with_name("whole")
    shutil.copytree(folder.path, whole)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    files = [path for path in files if path.suffix in (".pt", ".json", ".csv", ".yaml", "")]
    for seed in seeds:
        rng = random.Random(seed)
        shutil.rmtree(folder.path)
        shutil.copytree(whole, folder.path)
        path = folder.path / rng.choice(files)
        if state == "finished":
            folder.summary.unlink(missing_ok=path != folder.summary)
        if path.suffix == ".pt" and rng.random() < 0.7:
            change_weights(rng, path)
        elif path.exists():
            kinds = BINARY if path.suffix == ".pt" else TEXT
            path.write_bytes(damage_content(rng, path.read_bytes(), kinds))
        try:
            start(cfg)
        except UserError as error:
            assert len(str(error).splitlines()) == 1, f"seed {seed}: {error}"  # noqa: PT017
        except Exception as error:
            pytest.fail(f"seed {seed}, {path.name}: {error!r}")
