"""Training on stored features: `data=features`."""

import csv

import numpy as np
import pytest
import torch

import dml
from dml.core.errors import ConfigError, UserError
from dml.data.protocol import create_jobs
from dml.data.readers.features import FeatureDataset, read_features
from tests.conftest import run_config

CLASSES, PER_CLASS, WIDTH, VIEWS = 12, 6, 10, 3
# Of pairs, with a miner, with proxies or fields, ranked lists, hypergraphs. Every loss trains in
# tests/training; that the embeddings are of stored features makes no difference to it.
LOSSES = ("contrastive", "ms_miner", "proxy_anchor", "mfcwms", "pfml", "recall_at_k", "hist")
METHODS = {
    "ccp": ["loss=triplet"],
    "metrix": ["loss=ms", "method.types=[embed]"],
    "mochi": ["loss=contrastive"],
    "proxy_synthesis": ["loss=proxy_anchor"],
    "untrained": ["embedder.size=null", "protocol.epochs=0"],
    "xbm": ["loss=contrastive"],
}
BATCHES = ["data.batch_size=8", "data.sampler=balanced", "data.images_per_class=4"]
SHORT = ["protocol.epochs=2", "protocol.steps_per_epoch=2", "protocol.evaluate_every=1"]


def write(path, classes=CLASSES, **changes):
    """Writes features of classes that differ."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), PER_CLASS)
    plain = rng.normal(size=(classes, WIDTH))[labels] + rng.normal(size=(len(labels), WIDTH))
    arrays = {
        "embeddings": plain.astype(np.float32),
        "views": plain[:, None].astype(np.float16) + np.arange(1, VIEWS + 1)[:, None],
        "paths": np.array([f"gone/{row}.png" for row in range(len(labels))]),
        "labels": np.array([f"class {label:02}" for label in labels]),
    }
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(path, **arrays)
    return path


@pytest.fixture
def on_features(composed, tmp_path):
    """Trains on a file; returns summary and folder."""

    def run(*overrides, file=None):
        file = file or write(tmp_path / "made.npz")
        words = ["data=features", f"data.root={file}", "device=cpu", "embedder.size=8"]
        return run_config(composed(f"outputs={tmp_path}/outputs", *words, *overrides))

    return run


@pytest.mark.parametrize("loss", LOSSES)
def test_losses(on_features, loss):
    summary, _ = on_features(f"loss={loss}", *BATCHES, *SHORT)
    assert 0 < summary["metrics"]["map_at_r"]["mean"] <= 1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_needs_no_images(on_features, method):
    summary, _ = on_features(f"method={method}", *BATCHES, *SHORT, *METHODS[method])
    assert 0 < summary["metrics"]["map_at_r"]["mean"] <= 1


@pytest.mark.pictures
@pytest.mark.parametrize("views", [True, False])
def test_mlrc_of_an_mlp(on_features, tmp_path, views):
    file = write(tmp_path / "made.npz", **({} if views else {"views": None}))
    summary, folder = on_features(
        "protocol=mlrc_features", "loss=ms", "embedder.head=mlp", *BATCHES, *SHORT, file=file
    )
    assert len(summary["jobs"]) == 4
    trained = summary["concatenated"]["metrics"]["map_at_r"]["mean"]
    assert trained > summary["untrained"]["map_at_r"]["mean"]
    assert not (folder / "figures/neighbors.png").exists()  # the images are elsewhere


def test_views_are_drawn_for_training_only(tmp_path):
    index = read_features(write(tmp_path / "made.npz"))
    data = FeatureDataset(index.subset("train"))
    plain, labels = data.__getitems__([7, 8])
    assert torch.equal(plain, torch.from_numpy(index.features.plain[7:9]))
    assert labels.tolist() == [1, 1]
    drawn, _ = data.__getitems__([(7, seed) for seed in range(VIEWS)])
    shift = (drawn - plain[:1]).mean(1)
    assert shift.tolist() == pytest.approx([1, 2, 3], abs=0.01)
    assert drawn.dtype == torch.float32  # of a file of float16


def test_a_fold_gets_the_views_of_its_own_images(tmp_path):
    """The rows of a fold are not the first ones of the file."""
    index = read_features(write(tmp_path / "made.npz"))
    job = create_jobs("mlrc", 1, index, label_noise=0.0, seed=0)[1]
    for subset in (job.train, job.validation.query):
        data = FeatureDataset(subset)
        for position, row in enumerate(subset.rows):
            drawn, _ = data.__getitems__([(position, 1)])
            expected = index.features.views[row, 1].astype(np.float32)
            assert np.array_equal(drawn[0].numpy(), expected)


def test_standardized_by_the_training_features(on_features, tmp_path):
    _, folder = on_features("protocol=mlrc_features", "loss=ms", *BATCHES, *SHORT)
    index = read_features(tmp_path / "made.npz", split_seed=0)
    for job in create_jobs("mlrc", 1, index, label_noise=0.0, seed=0):
        plain = torch.from_numpy(index.features.plain[job.train.rows])
        path = folder / "checkpoints" / job.name / "best.pt"
        stored = torch.load(path, weights_only=True)["embedder"]
        assert torch.allclose(stored["backbone.mean"], plain.mean(0), atol=1e-6)
        assert torch.allclose(1 / stored["backbone.scale"], plain.std(0, correction=0), atol=1e-5)


def losses(folder):
    with open(folder / "history.csv", newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]


@pytest.mark.parametrize("method", [["loss=mfcwms"], ["loss=ms", "method=xbm"]], ids=str)
def test_equal_to_a_frozen_backbone(run_tiny, on_features, tmp_path, monkeypatch, method):
    """Ten steps on images that are not augmented, and on their stored features."""

    def fill(layer):  # otherwise head and loss are drawn after the backbone
        torch.manual_seed(0)
        torch.nn.init.normal_(layer.weight, std=0.1)
        torch.nn.init.zeros_(layer.bias)

    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", fill)
    shared = ["protocol=traditional", "embedder.init=default", "optim.warmup_epochs=0", *method]
    shared += ["protocol.steps_per_epoch=10", "protocol.epochs=1", "protocol.evaluate_unit=steps"]
    shared += ["protocol.evaluate_every=1", "protocol.stopping.patience=null", "optim.lr=1e-3"]
    shared += ["data.batch_size=32", "optim.loss_lr=1e-2", "data.pair_sampler=random"]
    shared += ["optim.weight_decay=0"]
    backbone = ["backbone.weights=glyphs", "backbone.width=32", "embedder.freeze_batch_norm=true"]
    still = "++optim.groups={backbone:{lr:0},batch_norm:{lr:0}}"
    on_images, folder = run_tiny(*shared, *backbone, "transform.augmentation=none", still)
    file = tmp_path / "digits.npz"
    dml.embed(folder, "data=digits", file, features=True)
    plain = "backbone.standardize=false"
    on_rows, of_rows = on_features(*shared, plain, "data.eval_batch_size=1000", file=file)
    assert len(losses(folder)) == 10
    assert losses(of_rows) == pytest.approx(losses(folder), rel=1e-6, abs=1e-5)
    for name, score in on_images["metrics"].items():
        assert on_rows["metrics"][name]["mean"] == pytest.approx(score["mean"], abs=1e-5)


def test_a_head_loads_with_the_network_below_it(run_tiny, on_features, tmp_path):
    _, network = run_tiny("protocol.epochs=0")
    file = tmp_path / "digits.npz"
    features = dml.embed(network, "data=digits", file, features=True)
    assert {*features.splits} == {"train", "test"}
    _, head = on_features("loss=ms", *SHORT, "data.batch_size=32", file=file)
    exported = dml.export(head, tmp_path / "exported")
    expected, made = (dml.embed(source, "data=digits").embeddings for source in (head, exported))
    assert np.array_equal(made, expected)
    trained = torch.load(head / "checkpoints/repeat0-fold0/best.pt", weights_only=True)["embedder"]
    rows = (torch.from_numpy(features.embeddings) - trained["backbone.mean"]) * trained[
        "backbone.scale"
    ]
    by_hand = rows @ trained["head.linear.weight"].T + trained["head.linear.bias"]
    by_hand = torch.nn.functional.normalize(by_hand)
    assert expected == pytest.approx(by_hand.numpy(), abs=1e-5)


def test_the_loss_of_a_head_is_loaded_with_its_own_config(run_tiny, on_features, tmp_path):
    """It was that of the network below."""
    _, network = run_tiny("protocol.epochs=0", "loss=ms")
    file = tmp_path / "digits.npz"
    dml.embed(network, "data=digits", file, features=True)
    _, head = on_features("loss=proxy_anchor", *SHORT, "data.batch_size=32", file=file)
    embedder, _, loss = dml.load(head, loss=True)
    trained = torch.load(head / "checkpoints/repeat0-fold0/best.pt", weights_only=True)
    (proxies,) = trained["method"].values() if "method" in trained else trained["loss"].values()
    assert any(torch.equal(value, proxies) for value in loss.state_dict().values())
    assert len(loss.classes) == len(proxies)
    assert embedder.embedding_size == 8


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("method=metrix loss=ms", r"use 'method.types=\[embed\]'"),
        ("method=imix loss=ms", "mixes images"),
        ("backbone=resnet50", "leave backbone out"),
        ("data=digits backbone=identity", "for data=features only"),
    ],
)
def test_what_needs_images_is_refused(on_features, words, problem):
    with pytest.raises(ConfigError, match=problem):
        on_features(*words.split())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"labels": None}, "has no labels"),
        ({"labels": np.array(["a"])}, "cannot be read"),
        ({"views": np.zeros((CLASSES * PER_CLASS, 2, 3))}, "cannot be read"),
        ({"splits": np.array(["train"] * CLASSES * PER_CLASS)}, "the splits are train"),
        ({"labels": np.array(["a"] * CLASSES * PER_CLASS)}, "images of 1 class"),
        (None, "no .npz file"),
    ],
)
def test_files_that_are_refused(on_features, tmp_path, changes, problem):
    file = tmp_path / "made.npz"
    if changes is not None:
        write(file, **changes)
    with pytest.raises(UserError, match=problem):
        on_features(file=file)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ((), "start other runs meanwhile"),
        (("protocol=mlrc_features",), "protocol.workers=4 trains several"),
        (("protocol.repeats=2",), "protocol.workers=4 trains several"),
    ],
)
def test_idle_cores_are_named(on_features, monkeypatch, capsys, words, remedy):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("dml.runs.summary.available_cores", lambda: 4)
    words = (*BATCHES, *SHORT, *words, "loss=contrastive")
    on_features(*words)
    output = " ".join(capsys.readouterr().out.split())
    assert f"(4 here): {remedy}" in output


@pytest.mark.parametrize("quiet", ["a core", "a thread", "a sweep", "images"])
def test_other_runs_have_no_note_on_cores(on_features, run_tiny, monkeypatch, capsys, quiet):
    monkeypatch.setenv("OMP_NUM_THREADS", "1" if quiet == "a thread" else "2")
    cores = 1 if quiet == "a core" else 4
    monkeypatch.setattr("dml.runs.summary.available_cores", lambda: cores)
    if quiet == "a sweep":
        monkeypatch.setattr("dml.runs.summary.read_sweep_size", lambda: 3)
    if quiet == "images":
        run_tiny("protocol.epochs=1")
    else:
        on_features(*BATCHES, *SHORT, "loss=contrastive")
    assert "in one thread" not in " ".join(capsys.readouterr().out.split())
