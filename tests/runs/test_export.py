"""Exports: whole or not at all, and never over files of others."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import stat
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

import dml
from dml.core import replaced_folder
from dml.core.errors import UserError
from dml.runs import experiment
from dml.runs.evaluation.evaluate import evaluate
from dml.runs.export import _describe_models, write_export
from dml.runs.load import compose_network
from tests.commands import export as export_command
from tests.commands import train as train_command
from tests.forked import context
from tests.killed_process import KILLED, die_at

FILES = {"config.yaml", "model.safetensors", "README.md"}


@pytest.fixture
def runs(run_tiny):
    """Two runs of different networks."""
    return [run_tiny("protocol.epochs=0", f"backbone.width={width}")[1] for width in (4, 6)]


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def width_of(folder):
    """Loads a network; returns what tells the two apart."""
    embedder, _ = dml.load(folder)
    return sum(parameter.numel() for parameter in embedder.parameters())


def test_another_run_replaces_everything(runs, tmp_path):
    target = tmp_path / "net"
    dml.export(runs[0], target)
    (target / "model.onnx").write_bytes(b"of the first run")
    dml.export(runs[1], target)
    assert {path.name for path in target.iterdir()} == FILES
    assert width_of(target) == width_of(runs[1])
    assert not list(tmp_path.glob(".net*"))


def test_an_export_of_an_export(runs, tmp_path):
    first = dml.export(runs[0], tmp_path / "a")
    second = dml.export(first, tmp_path / "b")
    assert width_of(second) == width_of(runs[0])
    with pytest.raises(UserError, match="is the folder that is exported"):
        dml.export(first, first)
    (tmp_path / "link").symlink_to(first)
    before = contents(first)
    with pytest.raises(UserError, match="is the folder that is exported"):
        dml.export(tmp_path / "link", first)
    assert contents(first) == before


@pytest.mark.promise("guides/resume.md", "`resume=` gets an exported network: it is refused")
@pytest.mark.parametrize("is_copied", [False, True])
def test_an_export_is_not_trained_further(runs, tmp_path, capsys, is_copied):
    """Training would start from scratch inside of it."""
    target = dml.export(runs[0], tmp_path / "net")
    if is_copied:
        target = shutil.copytree(target, tmp_path / "copy")
    before = contents(target)
    with pytest.raises(UserError, match=r"resume: .* is an exported network, not a run"):
        experiment.resume(target)
    assert train_command([f"resume={target}"]) == 2
    assert f"error: resume: {target} is an exported network" in capsys.readouterr().err
    assert contents(target) == before
    assert width_of(target) == width_of(runs[0])


@pytest.mark.parametrize(
    "made",
    [
        {"README.md": b"mine"},
        {"config.yaml": b"mine: 1"},
        {"notes.txt": b"mine", "README.md": b"mine"},
        {".git/HEAD": b"ref"},
        {"model.safetensors": b"\x02\0\0\0\0\0\0\0{}", "config.yaml": b"mine: 1"},
        {"model.onnx": b"mine"},
    ],
    ids=lambda made: "-".join(made),
)
def test_folders_of_others_stay(runs, tmp_path, capsys, made):
    target = tmp_path / "project"
    for name, content in made.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    before = contents(target)
    assert export_command([str(runs[0]), str(target)]) == 1
    assert capsys.readouterr().err.startswith("error: export: ")
    assert contents(target) == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation.json", b"{}"),
        ("evaluation.json", b'{"name": "mine", "metrics": {}, "answer": 42}'),
        ("evaluation.json", b"\xff"),
        ("embeddings.npz", b"mine"),
        ("embeddings.npz.faiss", b"mine"),
    ],
)
def test_an_export_with_a_file_of_others_stays(runs, tmp_path, name, content):
    target = dml.export(runs[0], tmp_path / "net")
    (target / name).write_bytes(content)
    before = contents(target)
    with pytest.raises(UserError, match=rf"holds {name}, which no export has written"):
        dml.export(runs[1], target)
    assert contents(target) == before


def test_embeddings_of_others_stay(runs, tmp_path):
    target = dml.export(runs[0], tmp_path / "net")
    np.savez(target / "embeddings.npz", embeddings=np.eye(2), origin="evaluation of mine")
    with pytest.raises(UserError, match=r"holds embeddings\.npz, which no export has written"):
        dml.export(runs[1], target)


@pytest.mark.parametrize("name", ["errors.html", "per_query.csv"])
def test_pages_and_tables_of_others_stay(runs, tmp_path, name):
    target = dml.export(runs[0], tmp_path / "net")
    (target / name).write_text("mine")
    with pytest.raises(UserError, match=f"holds {name}, which no export has written"):
        dml.export(runs[1], target)


def test_an_export_that_was_evaluated_is_replaced(runs, tmp_path):
    target = dml.export(runs[0], tmp_path / "net")
    words = [f"run={target}", "save=float16", "errors=true", "per_query=true"]
    evaluate(compose_network(words), {"run", "save", "errors", "per_query"})
    evaluated = {"evaluation.json", "embeddings.npz", "errors.html", "per_query.csv"}
    assert {path.name for path in target.iterdir()} == {*FILES, *evaluated}
    dml.export(runs[1], target)
    assert {path.name for path in target.iterdir()} == FILES  # no scores of the earlier network
    assert width_of(target) == width_of(runs[1])


def test_other_targets_are_refused(runs, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    before = contents(runs[0])
    for target, message in (
        (runs[0], "is the folder that is exported"),
        (runs[1], "holds "),
        (runs[0].parent, "holds "),
        (tmp_path / "file", "File exists"),
        (tmp_path / "pipe", "File exists"),
        (".", "is the current folder"),
    ):
        with pytest.raises(UserError, match=message):
            dml.export(runs[0], target)
    assert contents(runs[0]) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_new_empty_and_linked_folders(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("deep/er/net", "empty", "link"):
        assert width_of(dml.export(runs[0], tmp_path / name)) == width_of(runs[0])
    assert (tmp_path / "link").is_symlink()


def test_the_card_has_the_input_and_the_thresholds_of_its_model(run_tiny, tmp_path):
    words = ("protocol=holdout", "protocol.repeats=2", "evaluation.measures=[fnmr_at_fmr_0.01]")
    summary, folder = run_tiny(*words, "protocol.epochs=1", "transform.size=20")
    for job in summary["jobs"]:
        dml.export(folder, tmp_path / "net", repeat=job["repeat"], fold=0)
        card = (tmp_path / "net" / "README.md").read_text()
        threshold = job["metrics"]["fnmr_at_fmr_0.01_threshold"]
        assert f"- FNMR@FMR 0.01: distance {threshold:.6g}, by validation images" in card
        assert card.count("distance") == 1
        assert "Input: images of 20 x 20 pixels, channels rgb, values from 0 to 1," in card
        assert "None" not in card


def test_the_card_of_a_network_without_size_and_thresholds(runs, tmp_path):
    dml.export(runs[0], tmp_path / "net")
    card = (tmp_path / "net" / "README.md").read_text()
    assert "Input: images as large as those of the data, which are not resized" in card
    assert "None" not in card
    assert "threshold" not in card


def test_an_edited_card_is_kept(runs, tmp_path, capsys):
    target = tmp_path / "net"
    assert export_command([str(runs[0]), str(target)]) == 0
    assert "fill in the license" in capsys.readouterr().out
    card = (target / "README.md").read_text().replace("license: other", "license: mit")
    (target / "README.md").write_text(card)
    for _ in range(2):
        assert export_command([str(runs[1]), str(target)]) == 0
        assert "README.md was edited and is kept" in capsys.readouterr().out
        assert (target / "README.md").read_text() == card


def test_config_and_weights_of_two_exports_are_noticed(runs, tmp_path):
    first, second = (dml.export(run, tmp_path / run.name) for run in runs)
    config = (second / "config.yaml").read_text()
    (first / "config.yaml").write_text(config)
    with pytest.raises(UserError, match="are of two exports"):
        dml.load(first)
    without = "".join(line for line in config.splitlines(True) if not line.startswith("#"))
    (second / "config.yaml").write_text(without)  # of an earlier version
    with pytest.raises(UserError, match="are of two exports"):
        dml.load(second)


def test_an_export_of_an_earlier_version_loads_and_is_replaced(runs, tmp_path):
    from safetensors.torch import load_file, save_file

    target = dml.export(runs[0], tmp_path / "net")
    weights = load_file(target / "model.safetensors")
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(runs[0] / "config.yaml", target)
    assert width_of(target) == width_of(runs[0])
    made = write_export(runs[1], target)
    assert (width_of(target), made.card_kept) == (width_of(runs[1]), True)


def test_an_edited_path_of_the_data_stays_loadable(runs, tmp_path):
    target = dml.export(runs[0], tmp_path / "net")
    config = (target / "config.yaml").read_text()
    (target / "config.yaml").write_text(config.replace("root: data", "root: elsewhere"))
    assert width_of(target) == width_of(runs[0])


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_leaves_what_was_there(runs, tmp_path, exists):
    """A limit of the size of files acts as a full disk does."""
    place = tmp_path / "place"
    target = place / "net"
    if exists:
        dml.export(runs[0], target)
    before = contents(target) if exists else {}

    def work():
        os.dup2(os.open(tmp_path / "err", os.O_CREAT | os.O_WRONLY), 2)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
        sys.exit(export_command([str(runs[1]), str(target)]))

    process = context().Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 1
    err = (tmp_path / "err").read_text()
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert [path.name for path in place.glob("*")] == ["net"] * exists
    assert [path.name for path in place.glob(".*")] == []
    assert exists <= (contents(target) == before)


POINTS = ["folder_written", "export_written", "folder_exchanged"]
POINTS += [f"before_rename:{count}" for count in (1, 2, 3)]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_killed_export_leaves_one_of_the_two_whole(runs, tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(replaced_folder, "_exchange", lambda first, second: False)
    target = tmp_path / "net"
    widths = [width_of(run) for run in runs]
    dml.export(runs[0], target)
    points = [*POINTS, *([] if exchange else ["folder_away"])]
    for number, point in enumerate(points):
        status = die_at(point, dml.export, runs[(number + 1) % 2], target)
        assert status == (0 if point == "folder_exchanged" and not exchange else KILLED)
        assert width_of(target) in widths
        assert {path.name for path in target.iterdir()} == FILES
    dml.export(runs[1], target)
    assert width_of(target) == widths[1]
    assert not list(tmp_path.glob(".net.*.old"))


def test_32_kills(runs, tmp_path):
    """At random times, of an export over an export."""
    target, chance = tmp_path / "net", random.Random(0)
    widths = [width_of(run) for run in runs]
    begin = time.perf_counter()
    dml.export(runs[0], target)
    duration = time.perf_counter() - begin
    killed = 0
    for number in range(32):
        arguments = (runs[number % 2], target)
        process = multiprocessing.get_context("fork").Process(target=dml.export, args=arguments)
        process.start()
        time.sleep(chance.uniform(0, 1.5 * duration))
        process.kill()
        process.join()
        killed += process.exitcode == KILLED
        assert width_of(target) in widths
        assert {path.name for path in target.iterdir()} == FILES
    assert killed >= 8
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_of_a_run_and_its_export_have_the_mode_of_the_umask(run_tiny, tmp_path, umask):
    before = os.umask(umask)
    try:
        _, run = run_tiny("protocol.epochs=1")
        target = dml.export(run, tmp_path / "net")
        words = [f"run={target}", "save=float16", "errors=true", "per_query=true"]
        evaluate(compose_network(words), {"run", "save", "errors", "per_query"})
        Image.new("RGB", (8, 8)).save(tmp_path / "photo.png")
        for ending in ("npz", "parquet") if find_spec("pyarrow") else ("npz",):
            dml.embed(target, tmp_path / "photo.png", tmp_path / "embedded" / f"photo.{ending}")
    finally:
        os.umask(before)
    modes = {}
    for folder in (run, target, tmp_path / "embedded"):
        for path in folder.rglob("*"):
            expected = 0o777 if path.is_dir() else 0o666
            if path.name != "train.log":  # private: it may show a secret
                modes[path.name] = stat.S_IMODE(path.stat().st_mode) == expected & ~umask
    assert {"model.safetensors", "best.pt", "summary.json", "errors.html"} <= modes.keys()
    assert [name for name, is_expected in modes.items() if not is_expected] == []


def test_only_folders_of_ours_are_removed_beside(runs, tmp_path):
    users = tmp_path / ".net.0123abcd.partial"
    users.mkdir()
    (users / "README.md").write_text("mine")
    dml.export(runs[0], tmp_path / "net")
    assert (users / "README.md").read_text() == "mine"


@pytest.mark.parametrize(("models", "text"), [(1, "Scores"), (4, "Mean of the run's 4 models")])
def test_the_card_says_of_what_its_scores_are(models, text):
    assert _describe_models({"jobs": [{}] * models}) == text
