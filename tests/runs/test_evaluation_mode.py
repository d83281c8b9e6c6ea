"""Networks are in evaluation mode whenever they embed images without training."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

import dml
from tests.conftest import TINY, run_config

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)


class WithDropout(nn.Module):
    """A network with both kinds of layers that differ in training mode."""

    def __init__(self):
        super().__init__()
        layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5)
        self.body = nn.Sequential(*layers)

    def forward(self, images):
        return self.body(images).mean((2, 3))


NETWORKS = {
    "batch_norm": (),
    "dropout": ("backbone=custom", f"backbone._target_={__name__}.WithDropout", "transform.size=8"),
}


@pytest.fixture
def modes():
    """Pairs (gradients are enabled, layer is in training mode) of all layers of the two kinds."""
    seen = set()

    def note(layer, inputs):
        if isinstance(layer, nn.BatchNorm2d | nn.Dropout):
            seen.add((torch.is_grad_enabled(), layer.training))

    handle = register_module_forward_pre_hook(note)
    yield seen
    handle.remove()


@pytest.fixture(params=NETWORKS)
def trained(composed, tmp_path, request):
    words = [*TINY, "loss=contrastive", "protocol.epochs=1", *NETWORKS[request.param]]
    if request.param == "dropout":
        words.remove("backbone.width=4")
    return run_config(composed(f"outputs={tmp_path}/outputs", *words))[1]


def test_training_evaluates_in_evaluation_mode(modes, trained):
    assert modes == {(True, True), (False, False)}


def embed(folder, tmp_path, evaluated, **options):
    dml.embed(folder, IMAGES, trust=True, **options)


def load(folder, tmp_path, evaluated):
    embedder, _ = dml.load(folder, trust=True)
    embedder(torch.rand(2, 3, 8, 8))


def load_all(folder, tmp_path, evaluated):
    for embedder, _ in dml.load_all(folder, trust=True).values():
        embedder(torch.rand(2, 3, 8, 8))


def evaluate(folder, tmp_path, evaluated):
    evaluated(f"run={folder}", "trust=true")


def embed_by_an_export(folder, tmp_path, evaluated):
    embed(dml.export(folder, tmp_path / "exported", trust=True), tmp_path, evaluated)


COMMANDS = {
    "evaluate": evaluate,
    "embed": embed,
    "features": partial(embed, features=True),
    "views": partial(embed, views=2),
    "load": load,
    "load_all": load_all,
    "exported": embed_by_an_export,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_embed_in_evaluation_mode(modes, trained, evaluated, tmp_path, command):
    modes.clear()
    COMMANDS[command](trained, tmp_path, evaluated)
    assert {training for _, training in modes} == {False}


def test_a_network_without_a_run_is_scored_in_evaluation_mode(modes, evaluated):
    scores = [evaluated("data=digits", "backbone=small_cnn")["metrics"] for _ in range(2)]
    assert {training for _, training in modes} == {False}
    assert scores[0] == scores[1]


def test_embeddings_of_an_image_do_not_depend_on_the_others(trained):
    together = dml.embed(trained, IMAGES, trust=True).embeddings
    alone = [
        dml.embed(trained, IMAGES[row : row + 1], trust=True).embeddings
        for row in range(len(IMAGES))
    ]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-6)
