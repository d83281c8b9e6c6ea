"""What a config builds: the images that a network gets."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_model_data_config
from timm.layers import convert_sync_batchnorm
from torchvision.transforms.functional import pil_to_tensor

from dml.config.check import check
from dml.core.errors import ConfigError
from dml.core.torch_internals import BatchNorm
from dml.data.protocol import create_jobs
from dml.runs import build
from dml.runs.build import Builder
from dml.runs.load import compose_network
from dml.training.process_group import SINGLE_PROCESS


@pytest.fixture(scope="module")
def photo():
    pixels = np.random.default_rng(0).integers(0, 256, (260, 340, 3), np.uint8)
    return Image.fromarray(pixels)


def prepare(photo, *words):
    """The input that a network gets of a test image, and the spread of its channels."""
    config = compose_network(["data=folder", "backbone.weights=none", *words])
    embedder = Builder(config).embedder()
    transforms = Builder(config).transforms(embedder)
    return transforms.to_input(transforms.test(pil_to_tensor(photo))[None])[0], transforms


@pytest.mark.parametrize(
    "model", ["vit_tiny_patch16_224", "resnet18.tv_in1k", "mobilenetv3_small_050"]
)
def test_a_network_of_timm_gets_the_test_images_of_timm(photo, model):
    """With the interpolation of its record: bicubic or bilinear."""
    record = resolve_model_data_config(timm.create_model(model))
    expected = create_transform(**record)(photo)
    words = ("backbone=timm", f"backbone.model='{model}'", "embedder.token_pooling=token")
    made, transforms = prepare(photo, *words)
    level = 1 / 255 / min(record["std"])
    assert made.shape == expected.shape
    assert (made - expected).abs().max() < 2.5 * level
    crop = next(step for step in transforms.train if hasattr(step, "interpolation"))
    assert crop.interpolation.value == record["interpolation"]


def test_bn_inception_gets_blue_green_red_of_255_levels_minus_the_mean(photo):
    made, transforms = prepare(photo, "backbone=bn_inception")
    pixels = transforms.test(pil_to_tensor(photo)).float()
    for channel, (color, mean) in enumerate(((2, 104), (1, 117), (0, 128))):
        torch.testing.assert_close(made[channel], pixels[color] - mean)


class TwoProcesses:
    """A group of two processes, of which this is the first."""

    size = 2

    def run_main_first(self, build):
        return build()


@pytest.mark.parametrize(
    ("train", "model"),
    [("none", "test_resnet"), (1, "test_resnet"), (2, "test_resnet"), ("lora", "levit_128s")],
)
def test_frozen_statistics_stay_with_several_processes(composed, monkeypatch, train, model):
    """Other layers take the place of BatchNorm then, after the backbone was frozen."""
    words = ("data=digits", "backbone=timm", f"backbone.model={model}", "backbone.weights=none")
    size = {"levit_128s": 224}.get(model, 32)
    config = check(composed(*words, f"backbone.train={train}", f"transform.size={size}"))
    builder = Builder(config)
    (job, *_) = create_jobs(config.protocol.splits, 1, builder.index())

    def frozen(network):
        layers = [layer for layer in network.backbone.modules() if isinstance(layer, BatchNorm)]
        return [not layer.training for layer in layers]

    alone = builder.network(job.train, SINGLE_PROCESS, torch.device("cpu"))
    expected = frozen(alone.train())
    assert any(expected)

    def synchronize(network, device):
        for name, child in network.named_children():
            network.add_module(name, convert_sync_batchnorm(child))

    monkeypatch.setattr(build, "synchronize_batch_norm", synchronize)
    several = builder.network(job.train, TwoProcesses(), torch.device("cpu"))
    assert frozen(several.train()) == expected
    several.eval()
    assert frozen(several.train()) == expected


def test_a_warm_up_needs_parameters_outside_of_the_backbone(composed):
    words = ("data=digits", "loss=contrastive", "embedder.head=none", "embedder.size=null")
    config = check(composed(*words, "optim.warmup_epochs=1"))
    builder = Builder(config)
    embedder, method = builder.embedder(), torch.nn.Identity()
    with pytest.raises(ConfigError, match=r"optim\.warmup_epochs: the first 1 epoch would train"):
        builder.optimizer(embedder, method, 5)
    of_proxies = check(composed(*words, "optim.warmup_epochs=1", "optim.loss_lr=1"))
    Builder(of_proxies).optimizer(embedder, torch.nn.Linear(2, 2), 5)
    without = check(composed(*words, "optim.warmup_epochs=0"))
    Builder(without).optimizer(embedder, method, 5)
