"""i-Mix, MoCHi and Proxy Synthesis equal loops written from their descriptions."""

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from pytorch_metric_learning import losses as pml

import dml.methods.mixing_baselines as comparisons
from dml.core.errors import UserError
from dml.losses import ProxyNCALoss, ProxyNCAPlusPlusLoss, generic
from dml.methods.metrix import Metrix
from dml.methods.mixing_baselines import IMix, MoCHi, ProxySynthesis
from dml.methods.options import ALL_LOSSES, PROXY_LOSSES, SAMPLE_LOSSES
from dml.methods.plain import Plain
from tests.configs.test_loss import FROM_BUILDER, build, load
from tests.methods.metrix import metrix_reference as reference
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])
SAMPLES = {
    "contrastive": (lambda: pml.ContrastiveLoss(0, 1.3), reference.contrastive_over_terms(1.3)),
    "contrastive per anchor": (lambda: generic.ContrastiveLoss(1.3), reference.contrastive(1.3)),
    "ms": (lambda: pml.MultiSimilarityLoss(3, 7, 0.2), reference.deviance(3, 7, 0.2, divided=True)),
}


def setting():
    torch.manual_seed(1)
    return tiny_embedder(), torch.randn(len(LABELS), 3, 6, 6, dtype=torch.float64)


def over_anchors(form, members):
    """The mean of a form over lists of members; of contrastive in PML over all their terms."""
    if hasattr(form, "over_all_anchors"):
        return form([one for own in members for one in own])
    return reference.mean([form(own) for own in members])


def assert_same(value, expected, parameters, rtol=(1e-9, 1e-7), atol=(1e-12, 1e-10)):
    """Compares value and gradients; returns the expected gradients."""
    assert torch.allclose(value, expected, rtol=rtol[0], atol=atol[0])
    mine, theirs = (torch.autograd.grad(one, parameters) for one in (value, expected))
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a, b, rtol=rtol[1], atol=atol[1])
    return theirs


@pytest.fixture
def factors(monkeypatch):
    """The factors that `draw_lambdas` returned."""
    drawn = []
    original = comparisons.draw_lambdas

    def drawing(*args, **kwargs):
        drawn.append(original(*args, **kwargs))
        return drawn[-1]

    monkeypatch.setattr(comparisons, "draw_lambdas", drawing)
    return drawn


@pytest.mark.parametrize("clean", [0.0, 0.5])
@pytest.mark.parametrize("name", SAMPLES)
def test_imix(name, clean, factors, monkeypatch):
    make, form = SAMPLES[name]
    embedder, images = setting()
    partners = []
    original = comparisons.mix

    def mixing(x, first, second, weights):
        partners.extend(zip(first.tolist(), second.tolist(), strict=True))
        return original(x, first, second, weights)

    monkeypatch.setattr(comparisons, "mix", mixing)
    value, _ = IMix(make(), clean=clean)(embedder, images, LABELS)

    lam = factors[0][0].item()
    assert [a for a, _ in partners] == list(range(7))
    assert all(LABELS[a] != LABELS[n] for a, n in partners)
    u = F.normalize(embedder(images), dim=1)
    as_image, as_negative = [], []
    for a, n in partners:
        v = reference.embed_mix(embedder, "input", images, a, n, lam)
        for members, own in ((as_image, a), (as_negative, n)):
            others = [i for i in range(7) if i != own]
            members.append([(v @ u[i], float(LABELS[i] == LABELS[own])) for i in others])
    expected = lam * over_anchors(form, as_image) + (1 - lam) * over_anchors(form, as_negative)
    if clean:
        expected = expected + clean * make()(embedder(images), LABELS)
    assert_same(value, expected, list(embedder.parameters()))


@pytest.mark.parametrize("k", [2, 100])
@pytest.mark.parametrize("pairs", ["anc_neg", "neg_neg"])
@pytest.mark.parametrize("name", SAMPLES)
def test_mochi(name, pairs, k, monkeypatch):
    make, form = SAMPLES[name]
    embedder, images = setting()
    method = MoCHi(make(), pairs=pairs, hard_negatives=k)
    used = {}
    original = comparisons.mixed_norms

    def lengths(gram, first, second, weight):
        used.update(first=first, second=second, weight=weight)
        return original(gram, first, second, weight)

    monkeypatch.setattr(comparisons, "mixed_norms", lengths)
    value, _ = method(embedder, images, LABELS)

    u = F.normalize(embedder(images), dim=1)
    everything = []
    for a in range(7):
        negatives = [i for i in range(7) if LABELS[i] != LABELS[a]]
        hard = reference.hardest(negatives, u @ u[a], k)
        members = [(u[a] @ u[i], float(LABELS[i] == LABELS[a])) for i in range(7) if i != a]
        for column, n in enumerate(hard):
            first, second = used["first"][a, column].item(), used["second"][a, column].item()
            lam = used["weight"][a, column].item()
            assert second == n
            if pairs == "anc_neg":
                assert first == a
                assert 0 <= lam <= 0.5
            else:
                assert first in hard
                assert first != n
            v = F.normalize(lam * u[first] + (1 - lam) * u[n], dim=0)
            members.append((u[a] @ v, 0.0))
        everything.append(members)
    assert_same(value, over_anchors(form, everything), list(embedder.parameters()))


def synthesize(u, p, labels, partners, lam, one_class_per_pair=False):
    """Unit embeddings, labels and unit proxies with those of the mixes, one image at a time."""
    rows, new_labels, proxies, new = list(u), labels.tolist(), list(p), {}
    for i, j in partners:
        c, d = new_labels[i], new_labels[j]
        name = (c, d) if one_class_per_pair else i
        if name not in new:
            new[name] = len(proxies)
            proxies.append(F.normalize(lam * p[c] + (1 - lam) * p[d], dim=0))
        rows.append(F.normalize(lam * u[i] + (1 - lam) * u[j], dim=0))
        new_labels.append(new[name])
    return torch.stack(rows), torch.tensor(new_labels), torch.stack(proxies)


def proxy_anchor(u, labels, p):  # margin 0.1, alpha 4
    s, own = u @ p.T, F.one_hot(labels, len(p)).bool()
    pull = (s - 0.1).mul(-4).exp().mul(own).sum(dim=0)
    push = (s + 0.1).mul(4).exp().mul(~own).sum(dim=0)
    return pull.log1p().sum() / len(labels.unique()) + push.log1p().mean()


PROXY_CASES = {  # the last two as in the authors' code: logits of similarities, and of distances
    "proxy_anchor": (lambda: pml.ProxyAnchorLoss(5, 5, 0.1, 4), proxy_anchor),
    "proxy_nca_pp": (
        lambda: ProxyNCAPlusPlusLoss(5, 5, 1 / 23),
        lambda u, labels, p: F.cross_entropy(23 * u @ p.T, labels),
    ),
    "proxy_nca": (
        lambda: ProxyNCALoss(5, 5, 12),
        lambda u, labels, p: F.cross_entropy(-12 * (u[:, None] - p).square().sum(dim=2), labels),
    ),
}


@pytest.mark.parametrize("classes", ["mix", "pair"])
@pytest.mark.parametrize(
    ("labels", "distance"),
    [
        ([2, 0, 1, 2, 0, 3, 2, 0], 1),  # no neighbors of a class, as the authors' code asks
        ([2, 2, 0, 0, 3, 3, 1, 1], 2),
        ([0, 0, 0, 0, 0, 1, 2, 3], 3),  # four pairs of class 0 at 1, three at 2, two from 3 on
    ],
)
@pytest.mark.parametrize("loss", PROXY_CASES)
def test_proxy_synthesis(loss, labels, distance, classes, factors):
    torch.manual_seed(1)
    embedder, labels = tiny_embedder(), torch.tensor(labels)
    images = torch.randn(len(labels), 3, 6, 6, dtype=torch.float64)
    make, plain = PROXY_CASES[loss]
    clean = make().double()
    value, _ = ProxySynthesis(clean, classes=classes)(embedder, images, labels)

    partners = [(i, (i - distance) % len(labels)) for i in range(len(labels))]
    partners = [(i, j) for i, j in partners if labels[i] != labels[j]]
    u, p = F.normalize(embedder(images), dim=1), F.normalize(clean.proxies, dim=1)
    expected = plain(*synthesize(u, p, labels, partners, factors[0].item(), classes == "pair"))
    parameters = [*embedder.parameters(), clean.proxies]
    assert_same(value, expected, parameters, (0, 0), (1e-12, 1e-12))


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *((Metrix, name) for name in ALL_LOSSES.split(" | ")),
        *((IMix, name) for name in SAMPLE_LOSSES.split(" | ")),
        *((MoCHi, name) for name in SAMPLE_LOSSES.split(" | ") if name != "ms_miner"),
        *((ProxySynthesis, name) for name in PROXY_LOSSES.split(" | ")),
    ],
)
def test_without_mixes_it_is_the_plain_loss(method, name, monkeypatch):
    torch.manual_seed(1)
    labels = torch.tensor([2, 0, 0, 3, 1, 1, 0, 2, 5, 0, 6, 1])  # one image each of 3, 5 and 6
    embedder = tiny_embedder(size=FROM_BUILDER["embedding_size"])
    images = torch.randn(len(labels), 3, 6, 6, dtype=torch.float64)
    config = load(name)
    loss = build(config).double()
    miner = instantiate(config.loss.miner) if "miner" in config.loss else None
    monkeypatch.setattr(  # of i-Mix
        comparisons, "draw_lambdas", lambda count, *_, like: torch.ones(count).to(like)
    )
    monkeypatch.setattr(
        MoCHi, "_mix_negatives", lambda self, s, negative: (s[:, :0], negative[:, :0])
    )
    monkeypatch.setattr(  # with itself, which is of its class
        comparisons, "_pair_with_earlier", lambda labels: torch.arange(len(labels))
    )
    options = {"w": 0} if method is Metrix else {}
    value, _ = method(loss, miner, **options)(embedder, images, labels)
    expected, _ = Plain(loss, miner)(embedder, images, labels)
    parameters = [*embedder.parameters(), *loss.parameters()]
    gradients = assert_same(value, expected, parameters, (0, 0), (1e-10, 1e-10))
    assert gradients[0].abs().max() > 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IMix(ProxyNCAPlusPlusLoss(5, 5)), "imix cannot use it.*has proxies.*ms"),
        (lambda: MoCHi(pml.TripletMarginLoss()), "not additive.*choose loss=contrastive"),
        (lambda: ProxySynthesis(pml.ContrastiveLoss()), "has no proxies; choose loss=proxy_anchor"),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
