"""Runs with LoRA: resumed exactly, small on disk, loaded, and exported as ordinary networks."""

import json
import shutil

import pytest
import timm
import torch
import yaml

import dml
from dml.config.check import check
from dml.core.errors import UserError
from dml.runs.evaluation.evaluate import evaluate
from dml.runs.export import write_forms
from dml.runs.folder.run_folder import RunFolder
from dml.runs.load import compose_network
from dml.training.checkpoint_files import read_checkpoint
from tests.conftest import run_config
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import JOB, results_of, start

LORA = (
    *("data=digits", "data.classes=6", "device=cpu", "data.batch_size=32"),
    *("data.eval_batch_size=1000", "protocol.epochs=2", "protocol.steps_per_epoch=4"),
    *("backbone=timm", "backbone.model=test_vit", "backbone.input_size=32", "transform.size=32"),
    *("embedder.size=8", "backbone.train=lora", "backbone.lora.rank=2", "optim.lr=1e-3"),
)
TODAY = ("ema=0.8", "optim.schedule=cosine", "optim.warmup_steps=3", "optim.layer_decay=0.7")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "vit.pt"
    torch.save(timm.create_model("test_vit", num_classes=0, img_size=32).state_dict(), path)
    return path


@pytest.fixture
def run(composed, tmp_path, weights):
    def run_lora(*more, outputs="outputs"):
        words = {w.partition("=")[0]: w for w in (*LORA, f"backbone.weights={weights}", *more)}
        return run_config(composed(f"outputs={tmp_path / outputs}", *words.values()))[1]

    return run_lora


@pytest.mark.parametrize("point", ["after_step:2", "after_step:5", "after_evaluation:1"])
def test_killed_and_continued(composed, tmp_path, weights, point):
    """In the middle of an epoch, with an average and a schedule by steps."""
    folders = []
    for name in ("calm", "killed"):
        words = (*LORA, *TODAY, f"backbone.weights={weights}", f"outputs={tmp_path / name}")
        cfg = composed(*words)
        folders.append(RunFolder.of(check(cfg)))
        if name == "killed":
            assert die_at(point, start, cfg) == KILLED
        run_config(cfg)
    calm, killed = map(results_of, folders)
    assert killed == calm


@pytest.mark.parametrize("more", [(), TODAY])
def test_checkpoints_hold_adapters_and_head(run, weights, kept_states, more):
    folder = run(*more)
    for name in ("best.pt", "last.pt"):
        state = read_checkpoint(folder / "checkpoints" / JOB / name)
        stored = [state["embedder"], state.get("average", {})]
        names = {key.removeprefix("module.") for part in stored for key in part}
        kinds = {key.split(".")[-1] if "lora_" not in key else "lora" for key in names}
        assert kinds - {"n_averaged"} == {"lora", "weight", "bias", "base_hash"}
        assert {key for key in names if key.startswith("backbone") and "lora_" not in key} == set()
    assert (folder / "checkpoints" / JOB / "best.pt").stat().st_size < weights.stat().st_size / 4


def test_ccp_keeps_adapters_only(run, kept_states):
    folder = run("loss=c2", "method=ccp", "method.stage_patience=1", "method.proxies_per_class=2")
    state = read_checkpoint(folder / "checkpoints" / JOB / "last.pt")
    best = state["method"]["_extra_state"]["best"]
    assert best
    assert all("lora_" in name or name.startswith("head.") for name in best)


def test_scores_of_the_loaded_network_are_those_of_the_run(run):
    folder = run("ema=0.5")
    evaluate(compose_network([f"run={folder}"]), {"run"})
    scores = json.loads((folder / "evaluation.json").read_text())["metrics"]
    summary = json.loads((folder / "summary.json").read_text())["metrics"]
    assert scores["map_at_r"] == summary["map_at_r"]["mean"]


def test_the_loss_is_loaded_beside_the_adapters(run):
    folder = run("loss=proxy_nca")
    embedder, _, loss = dml.load(folder, loss=True)
    images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(embedder(images), dml.load(folder)[0](images))
    best = read_checkpoint(folder / "checkpoints" / JOB / "best.pt")
    torch.testing.assert_close(loss.loss.proxies.detach(), best["method"]["loss.proxies"])


def test_exported_as_an_ordinary_network(run, weights, tmp_path):
    folder = run()
    dml.export(folder, tmp_path / "net")
    weights_of_export = (tmp_path / "net" / "model.safetensors").stat().st_size
    assert weights_of_export > 0.9 * weights.stat().st_size
    moved = shutil.move(weights, tmp_path / "elsewhere.pt")
    try:
        embedder, _ = dml.load(tmp_path / "net")  # needs no file of pretrained weights
    finally:
        shutil.move(moved, weights)
    images = torch.randn(4, 3, 32, 32)
    assert not [name for name in embedder.state_dict() if "lora" in name]
    expected = dml.load(folder)[0](images)
    torch.testing.assert_close(embedder(images), expected, rtol=1e-5, atol=1e-6)


def test_onnx(run, tmp_path):
    pytest.importorskip("onnxruntime")
    assert write_forms(dml.export(run(), tmp_path / "net"), ["onnx"])["model.onnx"] <= 1e-5


def test_pretrained_weights_that_are_gone_or_changed(composed, tmp_path, weights):
    copied = shutil.copy(weights, tmp_path / "vit.pt")
    words = (*LORA, f"backbone.weights={copied}", f"outputs={tmp_path}/outputs")
    folder = run_config(composed(*words))[1]
    torch.save({k: v + 1 for k, v in torch.load(weights).items()}, copied)
    with pytest.raises(UserError, match=r"best.pt: the adapters belong to other weights than"):
        dml.load(folder)
    (tmp_path / "vit.pt").unlink()
    with pytest.raises(UserError, match=r"backbone.weights=.*vit.pt is not a file"):
        dml.load(folder)


@pytest.fixture
def of_a_stranger(run, tmp_path):
    """A run folder of somebody else, whose pretrained weights are at an address."""
    folder = run()
    path = folder / "config.yaml"
    options = yaml.safe_load(path.read_text())
    options["backbone"]["weights"] = "http://127.0.0.1:9/vit.pt"
    path.write_text(yaml.safe_dump(options))
    return folder


def test_nothing_is_fetched_that_a_folder_names(of_a_stranger):
    with pytest.raises(UserError, match=r"backbone.weights: 'http.*' would be fetched"):
        dml.load(of_a_stranger)


def test_an_export_of_it_fetches_nothing(run, tmp_path):
    net = dml.export(run(), tmp_path / "net")
    path = net / "config.yaml"
    text = path.read_text()
    options = yaml.safe_load(text)
    address = text.replace(options["backbone"]["weights"], "http://127.0.0.1:9/vit.pt")
    path.write_text(address)
    dml.load(net)


def test_random_weights_are_stored(run):
    folder = run("backbone.weights=none", "protocol.epochs=1")
    embedder, _ = dml.load(folder)
    state = read_checkpoint(folder / "checkpoints" / JOB / "best.pt")["embedder"]
    assert "base_hash" not in state
    assert torch.equal(embedder.state_dict()["head.linear.weight"], state["head.linear.weight"])


def test_lines(command_line, tmp_path, weights):
    words = [*LORA, f"outputs={tmp_path}/outputs", "protocol.epochs=1"]
    status, out, _ = command_line(*words, f"backbone.weights={weights}")
    assert status == 0
    assert "trains 0.0113 of 0.311 million parameters of the network (backbone.train=lora)" in out
    assert "adapters in 24 linear layers: qkv, proj, fc1, fc2" in out
    assert "random weights" not in out
    _, out, _ = command_line(*words, "backbone.weights=none")
    assert "note: backbone.train=lora adapts random weights here" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["backbone.lora.rank=0"], "backbone.lora.rank: 0 must be greater than or equal to 1"),
        (["backbone.lora.alpha=-1"], "backbone.lora.alpha: -1 must be greater than 0"),
        (["backbone.lora.targets=[]"], "backbone.lora.targets: [] names no layer"),
        (["backbone.lora.rankk=2"], "backbone.lora.rankk: no such option; did you mean"),
        (["backbone.train=all"], "backbone.lora: has no effect here; add backbone.train=lora"),
        (["backbone.train=LORA"], "backbone.train: LORA must be all, none, lora, or a number"),
        (["backbone=small_cnn"], "backbone.train: lora needs a network of timm; small_cnn is none"),
    ],
)
def test_wrong_options(command_line, words, message):
    given = {w.partition("=")[0]: w for w in (*LORA, "backbone.weights=none", *words)}
    if "backbone=small_cnn" in words:
        given = {"d": "data=digits", "b": words[0], "t": "backbone.train=lora"}
    status, _, err = command_line(*given.values())
    assert status != 0
    assert message in err
