"""Ten training steps of the framework equal those of a plain PyTorch loop, bit for bit.

The loop has a dataset, network, preprocessing, loss and optimizer of its own (timm, PML and torch).
It takes two things from the framework: the initial weights and the rows of each batch.
"""

import csv
import math
from copy import deepcopy
from itertools import combinations, count, islice, product

import numpy as np
import pytest
import timm
import torch
from peft import LoraConfig, get_peft_model
from PIL import Image
from pytorch_metric_learning import losses as pml
from timm.optim import param_groups_layer_decay
from torch.optim import swa_utils
from torchvision.transforms import v2

from dml.data.samplers import RandomBatches
from dml.losses import baselines
from dml.runs.build import Builder
from dml.training.checkpoint_files import read_checkpoint
from tests.conftest import run_config

STEPS, BATCH, CLASSES, SIZE, DIM = 10, 12, 6, 32, 16
SEED = int(np.random.SeedSequence([3, 0, 0]).generate_state(2)[1])  # of seed=3, of the batches
LAMBDA = 0.3
RUN = (
    *("data=folder", "data.reader.split_seed=null", "protocol=traditional"),
    *("backbone=timm", "backbone.model=test_resnet"),
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

    def vectors(self, images):
        mean, std = self.mean.float(), self.std.float()
        x = torch.addcmul(-mean / std, images.float(), 1 / 255 / std)
        return self.head(self.backbone(x.to(self.head.weight.dtype)).mean(dim=(2, 3)))

    def forward(self, images):
        return torch.nn.functional.normalize(self.vectors(images))


def train_plainly(root, network, loss_function, batches, layers=None, follow=None):
    """Losses of the steps; network and proxies are trained in place.

    Args:
        layers: groups of the backbone's parameters; None: one.
        follow: called with the optimizer, returns what is called after each step.
    """
    data = Photos(root)
    optimizer = torch.optim.AdamW(
        [
            *(layers or [{"params": network.backbone.parameters(), "lr": 1e-4}]),
            {"params": network.head.parameters(), "lr": 1e-4},
            {"params": loss_function.parameters(), "lr": 1e-2},
        ],
        weight_decay=1e-4,
    )
    after_step = follow(optimizer) if follow else lambda: None
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
        after_step()
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
    learned = [value for name, value in state["method"].items() if "_extra" not in name]
    with torch.no_grad():
        for parameter, value in zip(loss_function.parameters(), learned, strict=bool(learned)):
            parameter.copy_(value)


@pytest.fixture
def run_framework(composed, tmp_path, photos, kept_states):
    places = (f"outputs={tmp_path}/outputs", f"data.root={photos}", f"embedder.size={DIM}")

    def run(*more):
        words = {word.partition("=")[0]: word for word in ("device=cpu", *RUN, *places, *more)}
        return run_config(composed(*words.values()))[1]

    return run


def train_framework(run_framework, *words):
    """Weights before and after ten steps, and the rows of the history."""
    untrained = run_framework(*words, "protocol.epochs=0", "protocol.evaluate_every=10")
    trained = run_framework("protocol.epochs=1", "protocol.evaluate_every=1", *words)
    start, end = (
        read_checkpoint(folder / "checkpoints/repeat0-fold0" / name)
        for folder, name in ((untrained, "best.pt"), (trained, "last.pt"))
    )
    with open(trained / "history.csv", newline="") as file:
        return start, end, [row for row in csv.DictReader(file) if row["loss"]]


def test_ten_steps_equal_a_plain_loop(run_framework, photos):
    start, end, history = train_framework(run_framework)
    network, loss_function = (
        Network(),
        baselines.ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32),
    )
    load_plainly(network, loss_function, start)
    schedule = RandomBatches(np.zeros(8 * CLASSES), BATCH, SEED)
    losses = train_plainly(
        photos, network, loss_function, [schedule.batch(step) for step in range(STEPS)]
    )
    assert [float(row["loss"]) for row in history] == losses
    expected_network, expected_loss = Network(), baselines.ProxyAnchorLoss(CLASSES, DIM)
    load_plainly(expected_network, expected_loss, end)
    for name, value in network.state_dict().items():
        assert torch.equal(value, expected_network.state_dict()[name]), name
    assert torch.equal(loss_function.proxies, expected_loss.proxies)


TODAY = (*("ema=0.7", "optim.layer_decay=0.6", "optim.schedule=cosine", "optim.warmup_steps=4"),)


def test_averages_layers_and_warm_up_equal_a_plain_loop(run_framework, photos):
    start, end, history = train_framework(run_framework, *TODAY)
    network, loss_function = (
        Network(),
        baselines.ProxyAnchorLoss(CLASSES, DIM, margin=0.1, alpha=32),
    )
    load_plainly(network, loss_function, start)
    average = swa_utils.AveragedModel(
        network, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.7), use_buffers=True
    )
    layers = param_groups_layer_decay(
        network.backbone, weight_decay=1e-4, weight_decay_exclude_1d=False, layer_decay=0.6
    )
    for layer in layers:
        layer["lr"] = 1e-4 * layer.pop("lr_scale")

    def follow(optimizer):
        rates = [group["lr"] for group in optimizer.param_groups]
        steps = count(1)

        def set_rates(step):
            share = (step + 1) / 4 if step < 4 else 0.5 * (1 + math.cos(math.pi * (step - 4) / 6))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share

        def after_step():
            average.update_parameters(network)
            set_rates(next(steps))

        set_rates(0)
        return after_step

    schedule = RandomBatches(np.zeros(8 * CLASSES), BATCH, SEED)
    batches = [schedule.batch(step) for step in range(STEPS)]
    losses = train_plainly(photos, network, loss_function, batches, layers, follow)
    np.testing.assert_allclose([float(row["loss"]) for row in history], losses, rtol=1e-5)
    for stored, expected in ((end["embedder"], network), (end["average"], average.module)):
        weights = {key.removeprefix("module."): value for key, value in stored.items()}
        loaded = Network()
        load_plainly(loaded, loss_function, {"embedder": only_weights(weights), "method": {}})
        for name, value in expected.state_dict().items():
            if not value.is_floating_point():  # counts, which torch's average cuts off
                value = network.state_dict()[name]
            torch.testing.assert_close(loaded.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def only_weights(state):
    return {name: value for name, value in state.items() if name != "n_averaged"}


# The methods of the papers, written plainly; float64 on both sides, since they round differently.
def unit(x):
    return x / x.norm(dim=1, keepdim=True)


def clip(x):
    return x / x.norm(dim=1, keepdim=True).clamp(min=1)


def random_batches():
    for turn in count():
        order = np.random.default_rng([SEED, turn]).permutation(8 * CLASSES)
        yield from order.reshape(-1, BATCH)


def balanced_batches():
    """Three classes, four images of each; all come once before one comes again."""
    for turn in count():
        classes = np.random.default_rng([SEED, 0, turn]).permutation(CLASSES)
        for chosen in classes.reshape(-1, 3):
            rows = []
            for label in chosen:
                rng = np.random.default_rng([SEED, 2, label, turn // 2])
                rows += list((8 * label + rng.permutation(8))[4 * (turn % 2) :][:4])
            yield rows


def augment(images, step):
    """torchvision's crop and flip, seeded by step and place in the batch."""
    state = np.random.SeedSequence([SEED, 2, step]).generate_state(len(images), np.uint64)
    crop, flip = v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()
    augmented = []
    for image, seed in zip(images, state, strict=True):
        torch.manual_seed(int(seed >> np.uint64(1)))
        augmented.append(flip(crop(image)))
    return torch.stack(augmented)


def mfcwms(network, images, labels, fields, **_):
    d = 1 - network(images) @ unit(fields).T
    present = labels.unique()
    q = torch.zeros(CLASSES, CLASSES, dtype=d.dtype)
    for c in present:
        q[c] = torch.exp(-80 * (d[labels == c] - 0.2)).mean(dim=0)
    p = torch.stack([torch.exp(0.01 * (d[labels == c, c] - 0.2)).mean() for c in present])
    apart = torch.log1p(q + q.T)[~torch.eye(CLASSES, dtype=torch.bool)].sum()
    return torch.log1p(p).sum() / (0.01 * len(present)) + apart / (2 * 80 * len(present))


def pfml(network, images, labels, proxies, **_):
    charges = torch.cat([network(images), unit(proxies)])
    owners = torch.cat([labels, torch.arange(CLASSES).repeat_interleave(2)])
    energy = 0
    for a, b in combinations(range(len(charges)), 2):
        r = (charges[a] - charges[b]).norm()
        same = owners[a] == owners[b]
        energy = energy + 2 * (-(r.clamp(min=0.2) ** -4) if same else r.clamp(max=0.2) ** -4)
    return energy


def metrix(network, images, labels, **_):
    x = network(images)
    clean = pml.ContrastiveLoss(0, 0.5)(x, labels)
    pull, push = [], []
    for a, p, n in product(range(BATCH), repeat=3):
        if a != p and labels[a] == labels[p] != labels[n]:
            mixed = LAMBDA * x[p] + (1 - LAMBDA) * x[n]
            r = (x[a] - mixed / mixed.norm()).norm()
            pull.append(LAMBDA * r)
            push.append((1 - LAMBDA) * (0.5 - r).relu())
    terms = [torch.stack(side)[torch.stack(side) > 0] for side in (pull, push)]
    return clean + 0.4 * sum(side.mean() for side in terms if len(side))


def c2(x, labels, references, owners, other):
    r = (clip(x)[:, None] - clip(references)).square().sum(dim=2).clamp(min=1e-30).sqrt()
    same = labels[:, None] == owners
    terms = (r[same & other], (0.3841 - r[~same]).relu())
    return sum(side[side > 0].mean() for side in terms if (side > 0).any())


def xbm(network, images, labels, step, memory, **_):
    x, itself = network(images), torch.eye(BATCH, dtype=torch.bool)
    memory.append((x.detach(), labels))
    loss = c2(x, labels, x, labels, ~itself)
    if step < 4:
        return loss
    references, owners = (torch.cat(parts) for parts in zip(*memory[-3:], strict=True))
    earlier = torch.zeros(BATCH, len(owners) - BATCH, dtype=torch.bool)
    return loss + c2(x, labels, references, owners, ~torch.cat([earlier, itself], dim=1))


ADAM = {"optimizer": torch.optim.Adam, "weight_decay": 0.1}
CASES = {
    "mfcwms": (mfcwms, random_batches, 2000, {"warm_up": 5, "clip_value": 1e-3}, (
        "loss=mfcwms", "protocol.steps_per_epoch=5", "protocol.epochs=2", "optim.warmup_epochs=1",
        "optim.clip_value=1e-3")),
    "pfml": (pfml, balanced_batches, 100, ADAM, (
        "loss=pfml", "loss.proxies_per_class=2", "optim=adam", "optim.weight_decay=0.1",
        "data.sampler=balanced", "data.images_per_class=4")),
    "metrix": (metrix, balanced_batches, 100, {"augments": True}, (
        "loss=contrastive", "loss.neg_margin=0.5", "method=metrix", "method.types=[embed]",
        "method.pairs=[pos_neg]", "data.sampler=balanced", "data.images_per_class=4",
        "transform.augmentation=random_resized_crop", "transform.flip=true")),
    "xbm": (xbm, balanced_batches, 100, {"optimizer": torch.optim.RMSprop, "momentum": 0.9}, (
        "loss=c2", "method=xbm", "method.memory_batches=3", "method.start_after=4",
        "optim=rmsprop", "data.sampler=balanced", "data.images_per_class=4")),
}  # fmt: skip


def train_method(root, network, loss_parameters, method, batches, ratio, options):
    options = dict(options)
    make, clip_value = options.pop("optimizer", torch.optim.AdamW), options.pop("clip_value", None)
    warm_up, augments = options.pop("warm_up", 0), options.pop("augments", False)
    data, memory, losses = Photos(root), [], []
    groups = [{"params": network.parameters(), "lr": 1e-4}]
    groups += [{"params": loss_parameters, "lr": 1e-4 * ratio}] if loss_parameters else []
    optimizer = make(groups, **{"weight_decay": 1e-4, **options})
    for step, rows in zip(range(STEPS), batches, strict=False):
        images = torch.stack([data[row][0] for row in rows])
        images = augment(images, step) if augments else images
        labels = torch.tensor([data[row][1] for row in rows])
        network.backbone.requires_grad_(step >= warm_up)
        loss = method(network, images, labels, *loss_parameters, step=step, memory=memory)
        optimizer.zero_grad()
        loss.backward()
        if clip_value:
            torch.nn.utils.clip_grad_value_(network.parameters(), clip_value)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture
def in_float64(monkeypatch):
    build_network, build_method = Builder.network, Builder.method

    def network(*arguments):
        embedder = build_network(*arguments).double()
        embedder.backbone.register_forward_pre_hook(lambda _, images: (images[0].double(),))
        return embedder

    monkeypatch.setattr(Builder, "network", network)
    monkeypatch.setattr(Builder, "method", lambda *sizes: build_method(*sizes).double())
    constant = lambda pairs, *_, like: like.new_full((pairs,), LAMBDA)  # noqa: E731
    monkeypatch.setattr("dml.methods.metrix.metrix.draw_lambdas", constant)


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_of_a_method_equal_a_plain_loop(name, run_framework, photos, in_float64):
    method, batches, ratio, options, words = CASES[name]
    start, end, history = train_framework(run_framework, *words)
    # Adam divides gradients of 1e-9 by their size, with the rounding in them; a step is 1e-4
    learned = [value for key, value in start["method"].items() if "_extra" not in key]
    losses = torch.nn.ParameterList(torch.zeros_like(value) for value in learned)
    network, expected, expected_losses = Network().double(), Network().double(), deepcopy(losses)
    load_plainly(network, losses, start)
    load_plainly(expected, expected_losses, end)
    found = train_method(photos, network, list(losses), method, batches(), ratio, options)
    if name == "pfml":  # the log shows the energy in a form that people can read
        found = [loss * 0.2**4 / (BATCH + 2 * CLASSES) for loss in found]
    assert [float(row["loss"]) for row in history] == pytest.approx(found, rel=1e-9)
    torch.testing.assert_close(network.state_dict(), expected.state_dict(), rtol=0, atol=1e-7)
    torch.testing.assert_close(list(losses), list(expected_losses), rtol=0, atol=1e-7)


def train_stages(root, network, scores):
    """CCP (Algorithms 1 and 2); a stage ends at the first score that is not better."""
    data, optimizer, every = Photos(root), None, torch.ones(BATCH, 2 * CLASSES, dtype=torch.bool)
    proxies = torch.nn.Parameter(torch.zeros(2 * CLASSES, DIM, dtype=torch.float64))
    owners, best, best_proxies = torch.arange(CLASSES).repeat_interleave(2), None, proxies.detach()
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    of_norms = {p for m in norms for p in m.parameters()}
    rest = [p for p in network.parameters() if p not in of_norms]
    groups = [{"params": [*rest, proxies]}, {"params": list(of_norms), "weight_decay": 0}]
    optimizer = torch.optim.Adam(groups, lr=1e-4, weight_decay=0.1)
    stage, over, losses = -1, True, []
    for score, rows in zip(scores, balanced_batches(), strict=False):
        if over:
            stage, over, anchor, highest = stage + 1, False, best, -1.0
            rng = np.random.default_rng([SEED, 3, stage])
            pool = [rng.choice(8 * c + np.arange(8), 4, replace=False) for c in range(CLASSES)]
            images = torch.stack([data[row][0] for row in np.concatenate(pool)])
            with torch.no_grad():
                vectors = network.eval().vectors(images).view(CLASSES, 4, DIM)
            network.train()
            for c, candidates in enumerate(vectors):
                centers = list(best_proxies[2 * c : 2 * c + 2])
                for _ in range(2):
                    far = [min((v - center).norm() for center in centers) for v in candidates]
                    centers.append(candidates[int(np.argmax(far))])
                proxies.data[2 * c : 2 * c + 2] = torch.stack(centers[2:])
        x = network.vectors(torch.stack([data[row][0] for row in rows]))
        labels = torch.tensor([data[row][1] for row in rows])
        loss = c2(x, labels, proxies, owners, every)
        loss = loss + 0.1 * c2(x, labels, x, labels, ~torch.eye(BATCH, dtype=torch.bool))
        optimizer.zero_grad()
        loss.backward()
        for parameter, old in zip(network.parameters(), anchor or (), strict=False):
            parameter.grad += 0.5 * (parameter.data - old)
        torch.nn.utils.clip_grad_norm_([*network.parameters(), proxies], 0.5)
        torch.nn.utils.clip_grad_value_([*network.parameters(), proxies], 0.05)
        optimizer.step()
        losses.append(loss.item())
        over = score <= highest + 1e-5
        if not over:
            highest, best_proxies = score, proxies.detach().clone()
            best = [p.detach().clone() for p in network.parameters()]
    return losses, proxies, stage


def test_stages_of_ccp_equal_a_plain_loop(run_framework, photos, in_float64):
    start, end, history = train_framework(
        *(run_framework, "loss=c2", "method=ccp", "method.proxies_per_class=2"),
        *("method.pool_size=4", "method.stage_patience=1", "method.lambda_pull=0.5"),
        *("optim=adam", "optim.weight_decay=0.1", "optim.clip_norm=0.5", "optim.clip_value=0.05"),
        *("data.sampler=balanced", "data.images_per_class=4"),
    )
    network, expected = Network().double(), Network().double()
    learned = torch.nn.ParameterList([torch.zeros(2 * CLASSES, DIM, dtype=torch.float64)])
    load_plainly(network, learned, start)
    load_plainly(expected, learned, end)
    scores = [float(row["map_at_r"]) for row in history]
    losses, proxies, stage = train_stages(photos, network, scores)
    assert stage >= 1
    assert [float(row["loss"]) for row in history] == pytest.approx(losses, rel=1e-9)
    torch.testing.assert_close(network.state_dict(), expected.state_dict(), rtol=0, atol=1e-7)
    torch.testing.assert_close(proxies.data, learned[0].data, rtol=0, atol=1e-7)


class Adapted(torch.nn.Module):
    """The smallest ViT of timm with adapters by peft, its class token, a linear layer."""

    def __init__(self, weights):
        super().__init__()
        vit = timm.create_model("test_vit", num_classes=0, img_size=SIZE, global_pool="")
        vit.load_state_dict(torch.load(weights))
        adapters = LoraConfig(r=3, lora_alpha=12, target_modules=["qkv", "fc1"])
        self.backbone = get_peft_model(vit, adapters)
        self.head = torch.nn.Linear(vit.num_features, DIM)
        self.values = [torch.tensor(vit.default_cfg[name]) for name in ("mean", "std")]

    def forward(self, images):
        mean, std = (value.view(3, 1, 1) for value in self.values)
        x = torch.addcmul(-mean / std, images.float(), 1 / 255 / std)
        return unit(self.head(self.backbone(x.double())[:, 0]))

    def load(self, state):
        """Puts the adapters and the head of the framework into this network."""
        names = {"backbone.network.": "backbone.base_model.model.", "head.linear.": "head."}
        adapters = {}
        for name, value in state["embedder"].items():
            for ours, of_peft in names.items():
                name = name.replace(ours, of_peft)
            adapters[name] = value
        del adapters["base_hash"]
        missing, unexpected = self.load_state_dict(adapters, strict=False)
        assert not unexpected
        assert not [name for name in missing if "lora_" in name or "head" in name]


def test_adapters_equal_peft_in_a_plain_loop(run_framework, photos, in_float64, tmp_path):
    torch.manual_seed(7)
    vit = timm.create_model("test_vit", num_classes=0, img_size=SIZE)
    torch.save(vit.state_dict(), tmp_path / "vit.pt")
    start, end, history = train_framework(
        *(run_framework, "backbone.model=test_vit", f"backbone.input_size={SIZE}"),
        *(f"backbone.weights={tmp_path}/vit.pt", "backbone.train=lora", "backbone.lora.rank=3"),
        *("backbone.lora.alpha=12", "backbone.lora.targets=[qkv,mlp.fc1]", "optim.lr=1e-3"),
        "optim.loss_lr=1e-2",
    )
    network = Adapted(tmp_path / "vit.pt").double()
    loss_function = baselines.ProxyAnchorLoss(CLASSES, DIM)
    expected, base = deepcopy(network), deepcopy(network)
    network.load(start)
    loss_function.double().proxies.data.copy_(start["method"]["loss.proxies"])
    groups = [{"params": [p for p in network.parameters() if p.requires_grad], "lr": 1e-3}]
    groups += [{"params": loss_function.parameters(), "lr": 1e-2}]
    optimizer, data = torch.optim.AdamW(groups, weight_decay=1e-4), Photos(photos)
    losses = []
    for rows in islice(random_batches(), STEPS):
        images = torch.stack([data[row][0] for row in rows])
        labels = torch.tensor([data[row][1] for row in rows])
        loss = loss_function(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert [float(row["loss"]) for row in history] == pytest.approx(losses, rel=1e-12)
    expected.load(end)
    torch.testing.assert_close(network.state_dict(), expected.state_dict(), rtol=0, atol=1e-10)
    moved = [n for n, p in base.named_parameters() if not torch.equal(p, network.get_parameter(n))]
    assert {name.split(".")[-3] for name in moved if "backbone" in name} == {"lora_A", "lora_B"}
