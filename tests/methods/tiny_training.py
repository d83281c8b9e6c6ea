"""A network, images and a pool small enough to train in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from dml.data.samplers import class_pool
from dml.losses import C2Loss
from dml.methods.chance_constrained import ChanceConstrained
from dml.training.micro_batches import in_micro_batches


class TinyEmbedder(nn.Module):
    """Two linear maps; vectors are clipped to the unit ball."""

    def __init__(self, pixels: int = 6, size: int = 3, scale: float = 1.0) -> None:
        super().__init__()
        self.backbone = nn.Linear(pixels, 5)
        self.head = nn.Linear(5, size)
        self.scale = scale

    def unnormalized(self, images: Tensor) -> Tensor:
        return self.scale * self.head(self.backbone(images).tanh())

    def forward(self, images: Tensor) -> Tensor:
        v = self.unnormalized(images)
        return v / v.norm(dim=1, keepdim=True).clamp(min=1)


def images_of(labels: Tensor, pixels: int = 6) -> Tensor:
    """A fixed random image for each label, near the center of its class."""
    generator = torch.Generator().manual_seed(5)
    centers = torch.randn(int(labels.max()) + 1, pixels, generator=generator)
    return centers[labels] + torch.randn(len(labels), pixels, generator=generator)


class Pool:
    """`sample_pool` of such images; each draw shifts an image a little. Records the calls."""

    def __init__(self, images: Tensor, labels: Tensor, seed: int = 0) -> None:
        self.images, self.labels, self.seed = images, labels, seed
        self.asked: list[tuple[int, int]] = []

    def __call__(self, per_class: int, number: int) -> list[tuple[Tensor, Tensor]]:
        self.asked.append((per_class, number))
        keys = class_pool(self.labels.numpy(), per_class, self.seed, number)
        images = torch.stack(
            [
                self.images[row]
                + 0.1 * torch.randn(6, generator=torch.Generator().manual_seed(draw))
                for row, draw in keys
            ]
        )
        labels = self.labels[[row for row, _ in keys]]
        return list(zip(images.split(7), labels.split(7), strict=True))


def ccp_steps(
    device: str, steps: int = 9, micro_batch: int | None = None
) -> Iterator[Callable[[], Tensor]]:
    """Yields functions that take a step of CCP and return its loss; every third begins a stage.

    The first network, images and draws are the same on every device.
    """
    labels = torch.arange(4).repeat_interleave(5)
    images = images_of(labels)
    torch.manual_seed(0)
    embedder = TinyEmbedder().to(device)
    method = ChanceConstrained(C2Loss(), None, 4, 3, proxies_per_class=2, pool_size=4)
    pool = Pool(images, labels)
    method.to(device).train().attach(
        lambda *which: [(some.to(device), own.to(device)) for some, own in pool(*which)]
    )
    optimizer = torch.optim.SGD([*embedder.parameters(), *method.parameters()], lr=0.05)
    batch = images.to(device), labels.to(device)

    def step() -> Tensor:
        loss, _ = method(in_micro_batches(embedder, micro_batch), *batch)
        optimizer.zero_grad()
        loss.backward()
        method.after_backward(embedder)
        optimizer.step()
        return loss.detach()

    for number in range(steps):
        yield step
        if number % 3 == 2:
            for _ in range(4):  # no improvement: the stage ends
                method.on_evaluation(embedder, 0.0)
    assert method._stage == steps // 3 - 1
