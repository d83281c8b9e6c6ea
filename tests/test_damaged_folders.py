"""Whatever happened to the files of a run folder: the true result, or one line that says so."""

import random
import shutil

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.config_groups import CONFIGS
from dml.config.schema import Config
from dml.core.errors import UserError
from dml.runs.experiment import resume, run
from dml.runs.folder.run_folder import RunFolder
from tests.conftest import TINY
from tests.dying import die_at
from tests.fuzz.damage import BINARY, TEXT, damaged
from tests.test_resume import KILLED, essence

JOB = "checkpoints/repeat0-fold0"
CHECKPOINTS = [f"{JOB}/{name}.pt" for name in ("last", "previous", "best")]
WRITTEN = ["config.yaml", "history.csv", "run_id", "dataset.json", *CHECKPOINTS]
DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256))),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "gone": lambda path: path.unlink(),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A run killed in its third epoch, the same run finished, and its undisturbed result."""
    home = tmp_path_factory.mktemp("originals")
    with initialize_config_dir(str(CONFIGS), version_base=None):
        cfg = compose("train", [f"outputs={home}", *TINY, "protocol.epochs=3"])
    folder = RunFolder.of(cfg, check(cfg, Config))
    assert die_at("before_step:17", run, cfg, check(cfg, Config)) == KILLED
    shutil.copytree(folder.path, home / "killed")
    run(cfg, check(cfg, Config))
    shutil.copytree(folder.path, home / "finished")
    return cfg, home, essence(folder)


@pytest.fixture
def restored(originals, tmp_path):
    """Puts one of the original folders where a command finds it."""
    cfg, home, expected = originals

    def restore(state):
        here = OmegaConf.merge(cfg, {"outputs": str(tmp_path)})
        folder = RunFolder.of(here, check(here, Config))
        shutil.copytree(home / state, folder.path)
        return here, folder, expected

    return restore


def told_or_true(work, folder, expected):
    """Either one line that says what to do, or the result of the undisturbed run."""
    told = refusal(work)
    if told:
        remedies = (
            "overwrite=true",
            "delete it",
            "not a run folder",
            "repair that",
            "restores it",
            "cannot be read",
        )
        assert any(remedy in told for remedy in remedies), told
        assert len(told.splitlines()) == 1
    else:
        assert essence(folder) == expected
    return told


def refusal(work):
    try:
        work()
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", WRITTEN)
def test_a_killed_run_with_a_damaged_file(restored, name, damage):
    cfg, folder, expected = restored("killed")
    DAMAGES[damage](folder.path / name)
    told = told_or_true(lambda: run(cfg, check(cfg, Config)), folder, expected)
    # What is not needed to go on, or is there twice, must not stop the run.
    if damage != "folder" and name in ("config.yaml", "run_id", *CHECKPOINTS[:2]):
        assert not told
    if told:
        anew = OmegaConf.merge(cfg, {"overwrite": True})
        run(anew, check(anew, Config))
        assert essence(folder) == expected


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["summary.json", f"{JOB}/result.json"])
def test_a_finished_run_with_a_damaged_result(restored, name, damage):
    cfg, folder, expected = restored("finished")
    DAMAGES[damage](folder.path / name)
    if name != "summary.json":
        folder.summary.unlink()
    told = told_or_true(lambda: run(cfg, check(cfg, Config)), folder, expected)
    assert bool(told) == (damage != "gone")


def test_a_finished_run_without_its_history_gets_its_summary_back(restored):
    cfg, folder, expected = restored("finished")
    folder.summary.unlink()
    folder.history.unlink()
    summary = run(cfg, check(cfg, Config))
    assert summary["metrics"] == expected[2]


def test_a_history_with_a_gap_is_refused(restored):
    cfg, folder, _ = restored("killed")
    folder.history.write_text("".join(folder.history.read_text().splitlines(True)[:-1]))
    with pytest.raises(UserError, match=r"history\.csv is damaged \(2 of the 3 rows"):
        run(cfg, check(cfg, Config))


def test_best_in_the_place_of_last_is_passed_over(restored, capsys):
    cfg, folder, expected = restored("killed")
    last, _, best = (folder.path / name for name in CHECKPOINTS)
    shutil.copy(best, last)
    run(cfg, check(cfg, Config))
    assert "is not a training state (it has no 'rows')" in capsys.readouterr().out.replace(
        "\n", " "
    )
    assert essence(folder) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_resume_needs_a_legible_config(restored, damage):
    _, folder, expected = restored("killed")
    DAMAGES[damage](folder.config)
    assert told_or_true(lambda: resume(folder.path), folder, expected)


def _leaves(node):
    """Every (container, key) below a checkpoint's content."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _leaves(value)


def rewritten(rng, path):
    """A whole checkpoint with other weights: something missing, of another type or shape, NaN.

    Weights alone: they may come from another program. The rest is this one's own, and no disk
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
    """One line, or a run that goes on: some damage leaves a file that could be right."""
    cfg, folder, _ = restored(state)
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
            rewritten(rng, path)
        elif path.exists():
            kinds = BINARY if path.suffix == ".pt" else TEXT
            path.write_bytes(damaged(rng, path.read_bytes(), kinds))
        try:
            run(cfg, check(cfg, Config))
        except UserError as error:
            assert len(str(error).splitlines()) == 1, f"seed {seed}: {error}"  # noqa: PT017
        except Exception as error:
            pytest.fail(f"seed {seed}, {path.name}: {error!r}")
