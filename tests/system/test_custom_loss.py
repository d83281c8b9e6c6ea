"""Losses of users: what docs/losses_in_your_code.md says of those of PML, and published forms."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning import losses

from dml.config.check import check
from dml.core.errors import ConfigError, UserError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.build import Builder
from dml.runs.dry_run import dry_run
from tests.conftest import TINY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "losses_in_your_code.md"
TEXT = PAGE.read_text(encoding="utf-8")
SMALL = (*TINY, "protocol.epochs=1")
MINER = "pytorch_metric_learning.miners.MultiSimilarityMiner"


IN_TABLE = {
    name: row
    for names, row in re.findall(
        r"^\| (`\w+`.*?) \| (.*?) \|$", TEXT.split("## Our losses")[0], re.M
    )
    for name in re.findall(r"`(\w+)`", names)
}
CLASSES = [name for name in vars(losses) if isinstance(vars(losses)[name], type)]
CLASSES = [name for name in CLASSES if not name.endswith("Mixin")]


def test_the_table_of_pml_counts_its_classes():
    assert f"Of the {len(CLASSES)} classes" in TEXT
    assert f"{len(CLASSES) - len(IN_TABLE)} need no other options" in TEXT


@pytest.mark.parametrize("name", CLASSES)
def test_what_the_page_says_of_a_loss_of_pml(composed, name):
    row = IN_TABLE.get(name, "")
    options = [word for code in re.findall("`(.*?)`", row) for word in shlex.split(code)]
    words = [word for word in options if word.startswith("+loss.")]
    cfg = composed("loss=custom", f"loss._target_={losses.__name__}.{name}", *words, *SMALL)
    refused = row.startswith(("refused", "base class"))
    with pytest.raises((ConfigError, UserError, ValueError)) if refused else nullcontext():
        builder = Builder(check(cfg))
        method = builder.method(12, 8)
        build = partial(builder.optimizer, steps_per_epoch=1)
        dry_run(method, builder.config, build, 1, 12, 8, torch.device("cpu"))
        labels = torch.arange(60) % 12
        embedder = Embedder(SmallCNN(width=2), 8)
        value, _ = method(embedder, torch.rand(60, 3, 8, 8), labels)
        value.backward()
        assert value.isfinite()


PUBLIC = """
import torch
from torch import nn
from torch.nn import functional as F

class CenterLoss(nn.Module):
    def __init__(self, num_classes=10, feat_dim=2, use_gpu=True):
        super().__init__()
        centers = torch.randn(num_classes, feat_dim)
        self.centers = nn.Parameter(centers.cuda() if use_gpu else centers)

    def forward(self, x, labels):
        return (x - self.centers[labels]).pow(2).sum(dim=1).clamp(1e-12, 1e12).mean()

class ArcMarginProduct(nn.Module):
    def __init__(self, in_features, out_features, s=30.0, m=0.50, easy_margin=False):
        super().__init__()
        self.s, self.m = s, m
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, input, label):
        cosine = F.linear(F.normalize(input), F.normalize(self.weight)).clamp(-0.999, 0.999)
        own = F.one_hot(label, len(self.weight)).bool()
        return self.s * torch.where(own, (cosine.acos() + self.m).cos(), cosine)

class Proxy_Anchor(nn.Module):
    def __init__(self, nb_classes, sz_embed, mrg=0.1, alpha=32):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(nb_classes, sz_embed))

    def forward(self, X, T):
        cosine = F.normalize(X) @ F.normalize(self.proxies).T
        return (1 - cosine.gather(1, T[:, None])).mean()

class Fixed(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.layer = nn.Linear(32, 5)

    def forward(self, embeddings, labels):
        return F.cross_entropy(self.layer(embeddings), labels)

class Similarities(nn.Module):
    def forward(self, embeddings, labels):
        return embeddings @ embeddings.T
"""


@pytest.fixture
def public(tmp_path, monkeypatch, own_modules):
    """A current folder with losses in the forms in which they are published elsewhere."""
    (tmp_path / "my_public.py").write_text(PUBLIC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def public_words(name: str, *more: str) -> list[str]:
    return ["loss=custom", f"loss._target_=my_public.{name}", "protocol.steps_per_epoch=2", *more]


@pytest.mark.parametrize(
    ("words", "parameter", "shape"),
    [
        (["CenterLoss", "+loss.use_gpu=false"], "centers", (5, 8)),
        (["ArcMarginProduct", "loss.batch_kind=classification"], "weight", (5, 8)),
        (["Proxy_Anchor", "loss.batch_kind=classification"], "proxies", (5, 8)),
        (["Fixed", "+loss.margin=1", "embedder.size=32"], "layer.weight", (5, 32)),
    ],
)
def test_public_losses_train_unmodified(kept_states, public, command_line, words, parameter, shape):
    status, _, err = command_line(*SMALL, *public_words(*words))
    assert status == 0, err
    (checkpoint,) = public.glob("outputs/**/last.pt")
    state = torch.load(checkpoint, weights_only=True)
    trained = state["method"][f"loss.{parameter}"]
    assert trained.shape == shape
    groups = {group["name"]: group for group in state["optimizer"]["param_groups"]}
    assert groups["loss"]["lr"] == pytest.approx(100 * groups["head"]["lr"])
    first = next(iter(groups["loss"]["params"]))
    assert state["optimizer"]["state"][first]["exp_avg"].abs().sum() > 0  # it had gradients


@pytest.mark.skipif(torch.cuda.is_available(), reason="the loss is allowed to use the GPU")
def test_a_loss_that_wants_a_gpu(public, command_line):
    status, _, err = command_line(*SMALL, *public_words("CenterLoss"))
    assert status == 2
    assert len(err.splitlines()) == 1
    assert "(my_public.py, line 10)" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["Fixed"], "loss.margin: missing; add +loss.margin=<value>; num_classes and embedding_"),
        (["Fixed", "+loss.margin=1", "method=xbm"], "compares a batch with references, and Fixed"),
        (
            ["Fixed", "+loss.margin=1", f"+loss.miner._target_={MINER}"],
            "loss: raised on a batch, called as loss(embeddings, labels[, indices_tuple]): ",
        ),
        (["Similarities"], "loss: must return one number, a 0-d tensor, or logits for the 5 cla"),
    ],
)
def test_what_a_loss_of_two_arguments_cannot_do(public, command_line, words, message):
    status, _, err = command_line(*SMALL, *public_words(*words))
    assert status == 2
    assert message in err
    assert len(err.splitlines()) == 1
