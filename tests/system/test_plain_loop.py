"""Ten training steps of the framework equal those of a plain PyTorch loop, bit for bit.

The loop has a dataset, network, preprocessing, loss and optimizer of its own (timm, PML and torch).
It takes two things from the framework: the initial weights and the rows of each batch.
"""

import csv

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from pytorch_metric_learning import losses as pml

from dml.data.samplers import RandomBatches
from dml.training.checkpoint_files import read_checkpoint
from tests.conftest import run_config

STEPS, BATCH, CLASSES, SIZE, DIM = 10, 12, 6, 32, 16
RUN = (
    *("data=folder", "protocol=traditional", "backbone=timm", "backbone.model=test_resnet"),
    *("backbone.weights=none", f"transform.size={SIZE}", "transform.test_resize=null"),
    *("transform.augmentation=none", "transform.flip=false", "loss=proxy_anchor"),
    *("embedder.pooling=avg", f"data.batch_size={BATCH}", "optim.warmup_epochs=0"),
    *("optim.clip_value=null", "protocol.steps_per_epoch=10", "protocol.evaluate_unit=steps"),
    *("protocol.stopping.patience=null", "seed=3"),
)


class Photos(torch.utils.data.Dataset):
    """The training half of a folder of class folders, in the order of their names."""

    def __init__(self, root):
        folders = sorted(root.glob("class*"))[:CLASSES]
        self.items = [(p, y) for y, folder in enumerate(folders) for p in sorted(folder.iterdir())]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        path, label = self.items[row]
        pixels = torch.from_numpy(np.array(Image.open(path).convert("RGB")))
        return pixels.permute(2, 0, 1), label


class Network(torch.nn.Module):
    """The smallest ResNet of timm, average pooling, a linear layer, unit length."""

    def __init__(self):
        super().__init__()
        self.backbone = timm.create_model("test_resnet", num_classes=0, global_pool="")
        self.head = torch.nn.Linear(self.backbone.num_features, DIM)
        for name in ("mean", "std"):
            values = torch.tensor(self.backbone.default_cfg[name])
            self.register_buffer(name, values.view(3, 1, 1))

    def forward(self, images):
        x = torch.addcmul(-self.mean / self.std, images.float(), 1 / 255 / self.std)
        pooled = self.backbone(x).mean(dim=(2, 3))
        return torch.nn.functional.normalize(self.head(pooled))


def train_plainly(root, network, loss_function, batches):
    """Losses of the steps; network and proxies are trained in place."""
    data = Photos(root)
    optimizer = torch.optim.AdamW(
        [
            {"params": network.backbone.parameters(), "lr": 1e-4},
            {"params": network.head.parameters(), "lr": 1e-4},
            {"params": loss_function.parameters(), "lr": 1e-2},
        ],
        weight_decay=1e-4,
    )
    network.train()
    losses = []
    for rows in batches:
        items = [data[row] for row in rows]
        images = torch.stack([image for image, _ in items])
        labels = torch.tensor([label for _, label in items])
        loss = loss_function(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for label in range(2 * CLASSES):
        folder = tmp_path / "photos" / f"class{label:02d}"
        folder.mkdir(parents=True)
        for item in range(8):
            pixels = rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{item}.png")
    return tmp_path / "photos"


def load_plainly(network, loss_function, state):
    """Puts the framework's weights into the plain network and loss."""
    names = {
        key.replace("backbone.network.", "backbone.").replace("head.linear.", "head."): value
        for key, value in state["embedder"].items()
    }
    missing, unexpected = network.load_state_dict(names, strict=False)
    assert (set(missing), unexpected) == ({"mean", "std"}, [])
    with torch.no_grad():
        loss_function.proxies.copy_(state["method"]["loss.proxies"])


@pytest.fixture
def run_framework(composed, tmp_path, photos, kept_states):
    places = (f"outputs={tmp_path}/outputs", f"data.root={photos}", f"embedder.size={DIM}")

    return lambda *more: run_config(composed("device=cpu", *RUN, *places, *more))[1]


def test_ten_steps_equal_a_plain_loop(run_framework, photos):
    untrained = run_framework("protocol.epochs=0", "protocol.evaluate_every=10")
    trained = run_framework("protocol.epochs=1", "protocol.evaluate_every=1")
    start, end = (
        read_checkpoint(folder / "checkpoints/repeat0-fold0" / name)
        for folder, name in ((untrained, "best.pt"), (trained, "last.pt"))
    )
    network, loss_function = Network(), pml.ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32)
    load_plainly(network, loss_function, start)
    _, seed = np.random.SeedSequence([3, 0, 0]).generate_state(2)
    schedule = RandomBatches(np.zeros(8 * CLASSES), BATCH, int(seed))
    losses = train_plainly(
        photos, network, loss_function, [schedule.batch(step) for step in range(STEPS)]
    )
    with open(trained / "history.csv", newline="") as file:
        ours = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    assert ours == losses
    expected_network, expected_loss = Network(), pml.ProxyAnchorLoss(CLASSES, DIM)
    load_plainly(expected_network, expected_loss, end)
    for name, value in network.state_dict().items():
        assert torch.equal(value, expected_network.state_dict()[name]), name
    assert torch.equal(loss_function.proxies, expected_loss.proxies)
