"""Figures cannot cost a result: not by an exception, and not by the death of the process."""

import json
import os
import signal

import pytest

from dml.runs.folder.run_folder import RESULT
from tests.forked import context
from tests.system.conftest import DIGITS
from tests.system.finished_runs import JOB, only_run_folder, start

pytestmark = pytest.mark.pictures


def die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(*arguments, **options):
    raise MemoryError("no picture today")


@pytest.fixture
def config(composed, tmp_path):
    return composed(*DIGITS, f"outputs={tmp_path}")


def start_and_die(config, monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setattr(name, die)
        process = context().Process(target=start, args=(config,))
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL


def stop_in(config, monkeypatch, name):
    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(name, stop)
        with pytest.raises(KeyboardInterrupt):
            start(config)


DRAWINGS = {
    "dml.runs.figures.run_figures.draw_neighbors": "neighbors",
    "dml.runs.figures.run_figures.draw_maps": "embedding_map",
}


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.promise(
    "guides/resume.md",
    "the process dies while it draws: the result is stored already, and the same command leaves "
    "the figures out",
)
def test_a_result_is_stored_before_figures(name, config, monkeypatch, tmp_path, capsys):
    start_and_die(config, monkeypatch, name)
    folder = only_run_folder(tmp_path)
    stored = json.loads((folder.job(JOB) / RESULT).read_text())
    assert stored["metrics"]["map_at_r"] > 0
    with monkeypatch.context() as patch:
        patch.setattr(name, die)  # the same command would die again
        summary = start(config)
    assert summary["jobs"][0]["metrics"] == stored["metrics"]
    assert "left out" in capsys.readouterr().out
    assert {path.stem for path in folder.pictures()} >= {"learning_curve"}


def test_the_summary_is_stored_before_curves(config, monkeypatch, tmp_path, capsys):
    name = "dml.runs.experiment.draw_curves"
    start_and_die(config, monkeypatch, name)
    folder = only_run_folder(tmp_path)
    assert folder.read_summary()["metrics"]
    monkeypatch.setattr(name, die)
    assert start(config)["metrics"]
    assert "already finished" in (shown := capsys.readouterr().out)
    assert "left out" in shown
    start(config)
    assert "left out" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [*DRAWINGS, "dml.runs.figures.run_figures.learning_curve", "dml.runs.experiment.draw_curves"],
)
@pytest.mark.promise(
    "guides/resume.md",
    "a figure cannot be drawn: a note says why, and the result stays",
)
def test_an_exception_of_a_figure_is_a_note(name, config, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(name, fail)
    assert start(config)["metrics"]
    assert "cannot be drawn" in capsys.readouterr().out
    drawn = {path.stem for path in only_run_folder(tmp_path).pictures()}
    others = {"neighbors", "embedding_map", "learning_curve"} - {DRAWINGS.get(name)}
    assert drawn == others - ({"learning_curve"} if "curve" in name else set())


def test_curves_that_a_stop_left_are_drawn_by_the_same_command(config, monkeypatch, tmp_path):
    stop_in(config, monkeypatch, "dml.runs.experiment.draw_curves")
    folder = only_run_folder(tmp_path)
    assert not (folder.figures / "learning_curve.png").exists()
    start(config)
    assert (folder.figures / "learning_curve.png").exists()


@pytest.mark.promise(
    "guides/resume.md",
    "a stop interrupts the drawing: the same command draws the figures",
)
def test_pictures_that_a_stop_left_are_drawn_by_the_same_command(config, monkeypatch, tmp_path):
    stop_in(config, monkeypatch, "dml.runs.figures.run_figures.draw_maps")
    folder = only_run_folder(tmp_path)
    before = json.loads((folder.job(JOB) / RESULT).read_text())
    summary = start(config)
    assert summary["jobs"] == [before]
    assert {p.stem for p in folder.pictures()} == {"neighbors", "embedding_map", "learning_curve"}


MEASURES = ("alignment", "uniformity", "utilization", "nmi", "ami", "mrr_at_r",
            "fnmr_at_fmr_0.01", "covering_radius", "inter_class_distance")  # fmt: skip


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("output", ["zeros", "equal", "one-hot"])
@pytest.mark.promise(
    "guides/resume.md",
    "all embeddings are equal: the run keeps its scores, and has no map",
)
def test_a_collapsed_run_keeps_its_score(output, size, composed, tmp_path, monkeypatch, capsys):
    """Equal embeddings, with every measure and every picture."""
    import torch

    from dml.models.embedder import Embedder

    constant = {
        "zeros": torch.zeros(size),
        "equal": torch.ones(size),
        "one-hot": torch.eye(size)[0],
    }

    def embed(embedder, features):
        weights = next(embedder.parameters())
        return constant[output].expand(len(features), size) + 0 * weights.sum()

    monkeypatch.setattr(Embedder, "embed", embed)
    words = (f"embedder.size={size}", "loss=contrastive", f"outputs={tmp_path}")
    summary = start(composed(*DIGITS, *words, f"evaluation.measures=[{','.join(MEASURES)}]"))
    assert "map_at_r" in summary["metrics"]
    assert "no map" in capsys.readouterr().out
    assert {*MEASURES} <= {*summary["metrics"]}


def test_one_dimension_has_no_map(composed, tmp_path, capsys):
    summary = start(composed(*DIGITS, "embedder.size=1", f"outputs={tmp_path}"))
    assert summary["metrics"]["map_at_r"]["mean"] > 0
    assert "line" in capsys.readouterr().out
