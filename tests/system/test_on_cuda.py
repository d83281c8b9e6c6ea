"""The GPU gives the results of the CPU: steps of every loss and method, scores, runs, benchmark."""

from __future__ import annotations

import pytest
import torch

from dml.core.errors import RunStopped
from dml.retrieval import nearest_neighbors
from dml.tracking import History
from dml.training.device import set_precision
from dml.training.process_group import SINGLE_PROCESS
from scripts.benchmarks import train as benchmark
from tests.conftest import TINY, run_config
from tests.methods.tiny_training import ccp_steps
from tests.pretended_cuda.test_evaluation import (  # noqa: F401 - here on a real device
    test_neighbors_and_scores_are_those_of_the_cpu,
    test_neighbors_are_those_of_the_float64_ranking,
)
from tests.training.distributed_steps import CASES, relative, trained

DEVICE = "cuda"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(autouse=True)
def _strict_float32():
    set_precision("fp32", torch.device(DEVICE))


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_the_cpu(case):
    """Every loss file, every method but ccp, and the ways to train a network."""
    gpu, cpu = trained(case, SINGLE_PROCESS, DEVICE), trained(case, SINGLE_PROCESS)
    assert gpu.keys() == cpu.keys()
    for name, expected in cpu.items():
        first = name == "loss 0" or name.startswith("gradient of ")
        # Later steps start from weights that differ by the rounding of the first.
        tolerance = 0.05 if case == "bf16" else 1e-4 if first else 1e-3
        assert relative(gpu[name].cpu(), expected) < tolerance, name


def test_ccp_takes_the_steps_of_the_cpu():
    found, expected = ([step().item() for step in ccp_steps(on)] for on in (DEVICE, "cpu"))
    assert found == pytest.approx(expected, rel=1e-3)


def test_faiss_and_torch_share_the_gpu():
    """Each works after the other has, with training in between, and finds the same neighbors."""
    faiss = pytest.importorskip("faiss")
    if not hasattr(faiss, "StandardGpuResources"):
        pytest.skip("needs faiss-gpu")
    torch.manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(420, 32))
    x[5] = x[40]  # a tie
    expected = nearest_neighbors(x, k=9).indices
    layer = torch.nn.Linear(32, 32).to(DEVICE)
    for backend in ("faiss", "torch", "faiss", "torch"):
        layer(x.to(DEVICE)).square().sum().backward()  # not waited for
        found = nearest_neighbors(x.to(DEVICE), k=9, backend=backend)
        assert found.indices.device.type == DEVICE
        assert torch.equal(found.indices.cpu(), expected), backend


RUN = ("device=cuda", "loss=mfcont", "protocol.epochs=3", "overwrite=true")


def rows(folder):
    return History(folder / "history.csv").job_rows(0, 0)


def assert_alike(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        # Sums of a GPU come in any order; neighbors at almost the same distance change places.
        assert one == pytest.approx(other, rel=5e-3, abs=5e-3)


@pytest.mark.parametrize(
    "options",
    [("precision=tf32", "channels_last=true"), ("precision=bf16",), ("data.workers=2",)],
    ids=" ".join,
)
def test_a_short_training(run_tiny, options):
    summary, folder = run_tiny(*RUN, *options)
    assert summary["device"] == torch.cuda.get_device_name()
    assert summary["peak_memory_mb"] > 0
    assert summary["images_per_second"] > 0
    on_gpu = rows(folder)
    loss = [row["loss"] for row in on_gpu if "loss" in row]
    assert loss[-1] < loss[0]
    if not options[0].startswith("precision"):
        _, same = run_tiny(*RUN, "device=cpu")
        assert_alike(rows(same), on_gpu)


@pytest.mark.parametrize(
    "options",
    [("ema=0.8",), ("data.micro_batch=16",), ("compile=true",), ("method=metrix", "loss=ms")],
    ids=" ".join,
)
def test_a_way_to_train_is_that_of_the_cpu(run_tiny, options):
    _, folder = run_tiny(*RUN, *options)
    on_gpu = rows(folder)
    assert any("map_at_r" in row for row in on_gpu)
    _, same = run_tiny(*RUN, *options, "device=cpu", "compile=false")
    assert_alike(rows(same), on_gpu)


VIT = (
    *("backbone=timm", "backbone.model=test_vit", "backbone.weights=none"),
    *("backbone.input_size=32", "transform.size=32", "optim.lr=1e-3", "protocol.epochs=1"),
)


@pytest.mark.parametrize(
    "options", [("backbone.train=lora",), ("backbone.checkpointing=true",)], ids=" ".join
)
def test_a_transformer_is_trained_as_on_the_cpu(composed, tmp_path, options):
    words = {word.partition("=")[0]: word for word in (*TINY, *RUN, *VIT, *options)}
    del words["backbone.width"]
    _, folder = run_config(composed(f"outputs={tmp_path}", *words.values()))
    on_gpu = rows(folder)
    words["device"] = "device=cpu"
    _, same = run_config(composed(f"outputs={tmp_path}", *words.values()))
    assert_alike(rows(same), on_gpu)


def test_adapters_are_trained_compiled_in_bf16(composed, tmp_path):
    options = (
        *("backbone.train=lora", "precision=bf16", "compile=true"),
        *("protocol.epochs=3", "protocol.steps_per_epoch=4"),
    )
    words = {word.partition("=")[0]: word for word in (*TINY, *RUN, *VIT, *options)}
    del words["backbone.width"]
    _, folder = run_config(composed(f"outputs={tmp_path}", *words.values()))
    loss = [row["loss"] for row in rows(folder) if "loss" in row]
    assert loss[-1] < loss[0]


def test_a_training_that_is_stopped_goes_on(run_tiny):
    _, folder = run_tiny(*RUN)
    whole = rows(folder)
    with pytest.raises(RunStopped):
        run_tiny(*RUN, "max_minutes=1e-9")
    assert len(rows(folder)) == 1
    _, folder = run_tiny(*RUN, "overwrite=false")
    assert_alike(rows(folder), whole)
    _, moved = run_tiny(*RUN, "overwrite=false", "device=cpu")  # finished is finished anywhere
    assert moved == folder


def test_the_benchmark_runs(capsys):
    benchmark.main(
        [
            *("--device", "cuda", "--network", "small_cnn", "--size", "32", "--batch", "8"),
            *("--images", "16", "--steps", "2", "--rounds", "1", "--workers", "1"),
        ]
    )
    assert "not possible" not in capsys.readouterr().out
