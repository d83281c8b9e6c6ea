"""Training loops that differ in one option at a time, and the plain loop they are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler
from torchvision import transforms as v1

from dml.data.cache import open_image_source
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import LoaderOptions, train_batches
from dml.data.samplers import RandomBatches
from dml.data.transforms import ToInput, train_transform
from dml.methods.plain import Plain
from dml.models.backbones import Backbone
from dml.models.embedder import Embedder, compile_backbone
from dml.training.device import set_precision
from dml.training.interfaces import TrainConfig
from dml.training.optim import build_optimizer, parameter_groups
from dml.training.step import TrainingStep
from dml.training.train_state import TrainState

from .input import MEAN, STD, PlainDataset

DIMENSIONS = 512
ENDLESS = 10**6  # steps; more than any benchmark takes
PLAIN = "plain loop"
StepFunction = Callable[[Tensor, Tensor], object]


@dataclass(frozen=True)
class Setting:
    """Options that all loops of a table share.

    Attributes:
        network: see `build_backbone`.
        batch: images of a step.
        size: side of the crops in pixels.
        folder: of the photos; `.cache` in it holds decoded ones.
        device: cpu | cuda.
    """

    network: str
    batch: int
    size: int
    folder: str
    device: str


@dataclass(frozen=True)
class Variant:
    """One training loop; attributes as the options of `configs/train.yaml` of that name.

    `fused`: the optimizer is one kernel; on a GPU that is the default of a run.
    """

    name: str
    workers: int
    fused: bool = False
    channels_last: bool = False
    precision: str = "fp32"
    compile: bool | str = False
    cache: str | None = None


def ladder(device: str, workers: int, most_workers: int) -> list[Variant]:
    """Returns the plain loop, ours, and then one option more in each.

    Args:
        device: cpu | cuda; some options need a GPU.
        workers: loading processes of the first ones.
        most_workers: of the last one.
    """
    rungs = [Variant(PLAIN, workers), Variant("ours", workers)]

    def add(name: str, **options: object) -> None:
        rungs.append(replace(rungs[-1], name=name, **options))  # type: ignore[arg-type]

    on_gpu = device == "cuda"
    if on_gpu:
        add("+ fused optimizer", fused=True)
    add("+ channels_last", channels_last=True)
    if on_gpu:
        add("+ tf32", precision="tf32")
        add("+ bf16", precision="bf16")  # slow on most CPUs
    add("+ compile", compile=True)
    if on_gpu:
        add("+ compile=reduce-overhead", compile="reduce-overhead")
    add("+ data.cache=full", cache="full")
    if most_workers > workers:
        add(f"+ data.workers={most_workers}", workers=most_workers)
    return rungs


class Loop:
    """A training run that runs as many steps as requested.

    Args:
        setting: network, batch, data.
        variant: options of the loop.
    """

    def __init__(self, setting: Setting, variant: Variant) -> None:
        self.setting, self.variant = setting, variant
        self.device = torch.device(setting.device)
        torch.manual_seed(0)
        view = photos(Path(setting.folder))
        self.classes = view.num_classes
        self.embedder = Embedder(build_backbone(setting.network, setting.size), DIMENSIONS).to(
            self.device
        )
        self.method = Plain(_proxy_anchor(view)).to(self.device)
        plain = variant.name == PLAIN
        self.train_on = _plain_step(self) if plain else _our_step(self)
        batches = _plain_batches if plain else _our_batches
        self._batches = iter(batches(view, setting, variant, self.device))

    def advance(self, steps: int) -> float:
        """Trains on, and returns the seconds it took, with all work of the device done."""
        set_precision(self.variant.precision, self.device)
        if self.variant.name == PLAIN:
            # As torch ships it. Every measurement sets the precision, so none is restored.
            torch.backends.cudnn.allow_tf32 = True
        started = time.perf_counter()
        for _ in range(steps):
            images, labels = next(self._batches)
            self.train_on(images, labels)
        synchronize(self.device)
        return time.perf_counter() - started

    def step(self) -> None:
        """Trains on the next batch, without a clock."""
        self.train_on(*next(self._batches))


def synchronize(device: torch.device) -> None:
    """Waits until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def build_backbone(name: str, size: int) -> Backbone:
    """Returns a network with random weights, for images of `size` pixels.

    Raises:
        KeyError: unknown network.
    """
    from dml.models.backbones import TimmBackbone
    from dml.models.bn_inception import BNInception
    from dml.models.small_cnn import SmallCNN

    makers: dict[str, Callable[[], Backbone]] = {
        "bn_inception": lambda: BNInception(weights="none"),
        "resnet50": lambda: TimmBackbone("resnet50.tv_in1k", weights="none"),
        "vit_small": lambda: TimmBackbone("vit_small_patch16_224", "none", size),
        "vit_base": lambda: TimmBackbone("vit_base_patch16_224", "none", size),
        "small_cnn": lambda: SmallCNN(width=4),
    }
    return makers[name]()


def photos(folder: Path) -> Subset:
    """Returns the JPEG files of a folder, labeled with 100 classes in turn."""
    files = sorted(folder.glob("*.jpg"))
    labels, roles = np.arange(len(files)) % 100, np.full(len(files), "train")
    return ImageIndex("photos", files, labels, roles).subset("train")


def _proxy_anchor(view: Subset) -> nn.Module:
    from pytorch_metric_learning.losses import ProxyAnchorLoss

    return ProxyAnchorLoss(view.num_classes, DIMENSIONS)


def _plain_batches(
    view: Subset, setting: Setting, variant: Variant, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    augmentations = [v1.RandomResizedCrop(setting.size), v1.RandomHorizontalFlip()]
    dataset = PlainDataset(
        view, v1.Compose([*augmentations, v1.ToTensor(), v1.Normalize(MEAN, STD)])
    )
    # Endless: starting workers again for each pass over a few photos would be unfair.
    sampler = RandomSampler(dataset, num_samples=ENDLESS * setting.batch)
    loader = DataLoader(
        dataset,
        setting.batch,
        sampler=sampler,
        num_workers=variant.workers,
        pin_memory=device.type == "cuda",
    )
    for images, labels in loader:
        yield images.to(device), labels.to(device)


def _plain_step(loop: Loop) -> StepFunction:
    """A step as in papers' repositories: printing the loss makes every step wait for the GPU."""
    embedder, loss = loop.embedder, loop.method.loss
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-4)
    optimizer.add_param_group({"params": list(loss.parameters()), "lr": 1e-2})
    losses: list[float] = []

    def step(images: Tensor, labels: Tensor) -> None:
        embedder.train()
        value = loss(embedder(images), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())

    return step


def _our_batches(
    view: Subset, setting: Setting, variant: Variant, device: torch.device
) -> Iterable[tuple[Tensor, Tensor]]:
    return train_batches(
        view,
        train_transform("random_resized_crop", setting.size),
        LoaderOptions(
            ToInput(MEAN, STD),
            device,
            variant.workers,
            open_image_source(view.index, variant.cache, setting.folder),
        ),
        RandomBatches(view.labels, setting.batch, seed=0),
        seed=0,
        start=0,
        stop=ENDLESS,
    )


def _our_step(loop: Loop) -> StepFunction:
    variant = loop.variant
    groups = parameter_groups(loop.embedder, loop.method, lr=1e-4, weight_decay=1e-4, loss_lr=1e-2)
    fused = {"fused": variant.fused} if variant.fused or loop.device.type == "cuda" else {}
    optimizer = build_optimizer(torch.optim.AdamW, groups, fused)
    if variant.channels_last:
        loop.embedder.backbone.to(memory_format=torch.channels_last)
    compile_backbone(loop.embedder, variant.compile)
    plan = TrainConfig(1, ENDLESS, ENDLESS, precision=variant.precision)
    step = TrainingStep(TrainState(loop.embedder, loop.method, optimizer), plan)
    return lambda images, labels: step(images, labels, warming_up=False)
