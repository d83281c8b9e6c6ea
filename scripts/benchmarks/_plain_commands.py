"""What `dml train` and `dml embed` are compared with: scripts as in papers' repositories.

    python -m scripts.benchmarks._plain_commands train <folder> 64
    python -m scripts.benchmarks._plain_commands train-untrained-too <folder> 64
    python -m scripts.benchmarks._plain_commands embed <folder> 64

The folder has `train/<class>/<image>` and `test/<class>/<image>`. PIL decodes, torchvision's first
transforms make a float32 tensor of each image, and losses and scores are those of
pytorch-metric-learning.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

NETWORK, DIMENSIONS = "efficientnet_lite0", 128
TRAIN_BATCH, TEST_BATCH = 32, 256
MEAN = STD = (0.5, 0.5, 0.5)
METRICS = ("precision_at_1", "r_precision", "mean_average_precision_at_r")


class Network(nn.Module):
    """A network of timm without weights, a linear layer, and vectors of unit length."""

    def __init__(self) -> None:
        super().__init__()
        backbone: Any = timm.create_model(NETWORK, num_classes=0)
        self.backbone, self.head = backbone, nn.Linear(backbone.num_features, DIMENSIONS)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the embeddings B×D of images B×3×H×W."""
        return F.normalize(self.head(self.backbone(images)))


def test_images(folder: Path, size: int) -> ImageFolder:
    """Returns the images of a folder, resized and cropped to their center."""
    steps = [v1.Resize(round(size * 256 / 224)), v1.CenterCrop(size)]
    return ImageFolder(str(folder), v1.Compose([*steps, v1.ToTensor(), v1.Normalize(MEAN, STD)]))


@torch.no_grad()
def embed(network: Network, images: Dataset[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Returns the embeddings N×D of images, and their N labels."""
    network.eval()
    rows, labels = [], []
    for batch, classes in DataLoader(images, TEST_BATCH):
        rows.append(network(batch))
        labels.append(classes)
    return torch.cat(rows), torch.cat(labels)


def score(network: Network, images: Dataset[tuple[Tensor, int]]) -> dict[str, float]:
    """Returns the scores of images that are searched among themselves."""
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    cpu = torch.device("cpu")
    calculator = AccuracyCalculator(include=METRICS, k="max_bin_count", device=cpu)
    return calculator.get_accuracy(*embed(network, images))


def train(folder: Path, size: int, untrained: bool) -> None:
    """Trains for an epoch, scores the test images, and saves the weights."""
    from pytorch_metric_learning.losses import ProxyAnchorLoss  # late: `embed` needs none

    torch.manual_seed(0)
    crop = [v1.RandomResizedCrop(size), v1.RandomHorizontalFlip()]
    transform = v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)])
    images = ImageFolder(str(folder / "train"), transform)
    tested = test_images(folder / "test", size)
    network = Network()
    loss = ProxyAnchorLoss(len(images.classes), DIMENSIONS)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    optimizer.add_param_group({"params": list(loss.parameters()), "lr": 1e-2})
    if untrained:
        print(score(network, tested))
    network.train()
    for batch, labels in DataLoader(images, TRAIN_BATCH, shuffle=True, drop_last=True):
        value = loss(network(batch), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        print(value.item())
    print(score(network, tested))
    torch.save(network.state_dict(), folder.with_name("plain.pt"))


def main() -> None:
    """Runs the script that the words of the command name."""
    script, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if script == "embed":
        torch.manual_seed(0)
        vectors, labels = embed(Network(), test_images(folder / "test", size))
        file = folder.with_name("plain.npz")
        np.savez(file, embeddings=vectors.numpy(), labels=labels.numpy())
        return
    train(folder, size, untrained=script == "train-untrained-too")


if __name__ == "__main__":
    main()
