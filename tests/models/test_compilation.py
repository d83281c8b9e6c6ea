"""The option `compile`: what is compiled, and how."""

import pytest
import torch

from dml.core.errors import UserError
from dml.models.embedder import Embedder, compile_backbone
from dml.models.small_cnn import SmallCNN

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("choice", "device", "calls"),
    [
        (False, CPU, []),
        (True, CPU, [{}]),
        (True, CUDA, [{}]),
        ("reduce-overhead", CUDA, [{"mode": "reduce-overhead"}]),
    ],
)
def test_the_backbone_is_compiled_in_a_mode_of_torch(choice, device, calls, monkeypatch):
    embedder = Embedder(SmallCNN(width=2), 4)
    found = []
    monkeypatch.setattr(embedder.backbone, "compile", lambda **options: found.append(options))
    compile_backbone(embedder, choice, device)
    assert found == calls


def test_graphs_of_cuda_need_a_gpu():
    embedder = Embedder(SmallCNN(width=2), 4)
    with pytest.raises(UserError, match=r"^compile: reduce-overhead .* no GPU; use compile=true"):
        compile_backbone(embedder, "reduce-overhead", CPU)
