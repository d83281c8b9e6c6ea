"""i-Mix, MoCHi and Proxy Synthesis equal loops written from their descriptions."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml

import dml.methods.comparisons as comparisons
from dml.core.errors import UserError
from dml.losses import ProxyNCAPlusPlusLoss, generic
from dml.methods.comparisons import IMix, MoCHi, ProxySynthesis
from tests.methods.metrix import metrix_reference as reference
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])
SAMPLES = {
    "contrastive": (lambda: pml.ContrastiveLoss(0, 1.3), reference.contrastive(1.3)),
    "ms": (
        lambda: pml.MultiSimilarityLoss(3, 7, 0.2),
        reference.deviance(3, 7, 0.2, divided=True),
    ),
}


def setting():
    torch.manual_seed(1)
    return tiny_embedder(), torch.randn(len(LABELS), 3, 6, 6, dtype=torch.float64)


def assert_same(value, expected, parameters):
    assert torch.allclose(value, expected, rtol=1e-9, atol=1e-12)
    mine = torch.autograd.grad(value, parameters)
    for a, b in zip(mine, torch.autograd.grad(expected, parameters), strict=True):
        assert torch.allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.fixture
def factors(monkeypatch):
    """What `draw_lambdas` gave."""
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
    losses = []
    for a, n in partners:
        v = reference.embed_mix(embedder, "input", images, a, n, lam)
        for factor, own in ((lam, a), (1 - lam, n)):
            members = [(v @ u[i], float(LABELS[i] == LABELS[own])) for i in range(7) if i != own]
            losses.append(factor * form(members))
    expected = torch.stack(losses).sum() / 7
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
    losses = []
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
        losses.append(form(members))
    assert_same(value, torch.stack(losses).mean(), list(embedder.parameters()))


def test_mochi_partners_are_any_other_hard_negative():
    torch.manual_seed(0)
    method = MoCHi(pml.MultiSimilarityLoss(), pairs="neg_neg", hard_negatives=3)
    u = F.normalize(torch.randn(6, 4), dim=1)
    negative = torch.ones(6, 6, dtype=torch.bool).fill_diagonal_(False)
    hard = (u @ u.T).masked_fill(~negative, -math.inf).topk(3, dim=1).indices
    seen = set()

    def lengths(gram, first, second, weight):
        seen.update(zip(second[0].tolist(), first[0].tolist(), strict=True))
        return torch.ones_like(weight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "mixed_norms", lengths)
        for _ in range(60):
            method._mix_negatives(u @ u.T, negative)
    three = hard[0].tolist()
    assert seen == {(a, b) for a in three for b in three if a != b}


@pytest.mark.parametrize("loss", ["proxy_anchor", "proxy_nca_pp"])
def test_proxy_synthesis(loss, factors):
    embedder, images = setting()
    classes = 5
    if loss == "proxy_anchor":
        clean = pml.ProxyAnchorLoss(classes, 5, 0.1, 4).double()
        larger = generic.ProxyAnchorLoss
        arguments = (0.1, 4)
    else:
        clean, larger, arguments = (
            ProxyNCAPlusPlusLoss(classes, 5, 0.3).double(),
            generic.ProxyNCAPlusPlusLoss,
            (0.3,),
        )
    torch.manual_seed(5)
    value, _ = ProxySynthesis(clean)(embedder, images, LABELS)
    torch.manual_seed(5)
    partner = torch.randperm(7).tolist()

    lam = factors[0].item()
    u, p = F.normalize(embedder(images), dim=1), F.normalize(clean.proxies, dim=1)
    rows, labels, proxies, new = list(u), LABELS.tolist(), list(p), {}
    for i, j in enumerate(partner):
        c, d = LABELS[i].item(), LABELS[j].item()
        if c == d:
            continue
        if (c, d) not in new:
            new[c, d] = len(proxies)
            proxies.append(F.normalize(lam * p[c] + (1 - lam) * p[d], dim=0))
        rows.append(F.normalize(lam * u[i] + (1 - lam) * u[j], dim=0))
        labels.append(new[c, d])
    assert new
    module = larger(len(proxies), 5, *arguments).double()
    expected = torch.func.functional_call(
        module, {"proxies": torch.stack(proxies)}, (torch.stack(rows), torch.tensor(labels))
    )
    assert_same(value, expected, [*embedder.parameters(), *clean.parameters()])


@pytest.mark.parametrize("method", [IMix, MoCHi, ProxySynthesis])
def test_one_class_alone_is_no_error(method):
    embedder, images = setting()
    proxies = method is ProxySynthesis
    loss = ProxyNCAPlusPlusLoss(3, 5).double() if proxies else pml.MultiSimilarityLoss()
    value, _ = method(loss)(embedder, images, torch.zeros(7, dtype=torch.long))
    value.backward()
    assert value.isfinite()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IMix(ProxyNCAPlusPlusLoss(5, 5)), "imix cannot use it.*has proxies.*ms"),
        (lambda: MoCHi(pml.TripletMarginLoss()), "not additive.*choose loss=contrastive"),
        (lambda: ProxySynthesis(pml.ContrastiveLoss()), "has no proxies; choose loss=proxy_anchor"),
        (lambda: MoCHi(pml.MultiSimilarityLoss(), pairs="neg"), r"method\.pairs: unknown 'neg'"),
        (lambda: MoCHi(pml.MultiSimilarityLoss(), miner=len), r"loss\.miner"),
        (lambda: IMix(pml.MultiSimilarityLoss(), alpha=0), r"method\.alpha=0 must be above 0"),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
