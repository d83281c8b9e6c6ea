"""The mixed loss and its gradients equal a direct loop over anchors and pairs; options."""

from collections import Counter

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch.nn.functional import normalize

import dml.methods.metrix.metrix as metrix
from dml.core.errors import UserError
from dml.losses import ProxyNCALoss, ProxyNCAPlusPlusLoss, generic
from dml.methods.metrix import TYPES, Metrix
from dml.methods.metrix.mixing_pairs import PAIRS
from tests.methods.metrix import metrix_reference as reference
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])  # an anchor without a positive, a class of three


def test_each_batch_draws_one_type_and_one_kind_of_pairs(monkeypatch):
    seen = []
    method = Metrix(pml.MultiSimilarityLoss(), types=["embed", "input", "feature"])

    def noting(embedder, kind, pairs, given, x, labels):
        seen.append((kind, pairs))
        return x.sum() * 0

    monkeypatch.setattr(method, "mixed_loss", noting)
    torch.manual_seed(0)
    embedder, images = tiny_embedder(), torch.randn(7, 3, 6, 6, dtype=torch.float64)
    for _ in range(300):
        method(embedder, images, LABELS)
    counts = [seen.count((k, p)) for k in TYPES for p in ("pos_neg", "anc_neg")]
    assert sum(counts) == 300
    assert min(counts) > 25


def test_the_published_id_has_the_types_in_the_order_of_the_tables():
    options = {"types": ["embed", "input"]}
    assert Metrix.result_id("ms", options) == "ms+metrix_input_embed"


def test_anchor_negative_mixes_of_proxies_exist_in_embedding_space_only():
    loss = pml.ProxyAnchorLoss(5, 5)
    assert Metrix(loss, types=["feature", "embed"]).pairs == {
        "feature": ["pos_neg"],
        "embed": ["pos_neg", "anc_neg"],
    }
    with pytest.raises(UserError, match=r"method\.pairs=\[anc_neg\] with type 'input'.*pos_neg"):
        Metrix(loss, types=["input"], pairs=["anc_neg"])


CLASSES, SIZE = 5, 5  # and a class that is absent


# fmt: off
CASES = {
    "contrastive": (lambda: pml.ContrastiveLoss(0, 1.3), reference.contrastive_over_terms(1.3)),
    "contrastive with positive margin":
        (lambda: pml.ContrastiveLoss(0.4, 1.3), reference.contrastive_over_terms(1.3, 0.4)),
    "contrastive over anchors":
        (lambda: pml.ContrastiveLoss(0.4, 1.3), reference.contrastive(1.3, 0.4)),
    "cosine contrastive":
        (lambda: generic.ContrastiveLoss(0.1, form="cosine"), reference.contrastive_cosine(0.1)),
    "lifted": (lambda: generic.LiftedStructureLoss(0.3), reference.lifted(0.3)),
    "binomial": (lambda: generic.BinomialDevianceLoss(3, 7, 0.2),
                 reference.deviance(3, 7, 0.2, divided=False)),
    "ms": (lambda: pml.MultiSimilarityLoss(3, 7, 0.2), reference.deviance(3, 7, 0.2, divided=True)),
    "nca": (generic.NCALoss, reference.nca(1.0)),
    "proxy_anchor": (lambda: pml.ProxyAnchorLoss(CLASSES, SIZE, 0.1, 4),
                     reference.proxy_anchor(4, 0.1)),
    "proxy_nca of the table": (
        lambda: generic.OriginalProxyNCALoss(CLASSES, SIZE), reference.nca(1.0)
    ),
    "proxy_nca": (lambda: ProxyNCALoss(CLASSES, SIZE, 3.0), reference.nca(6.0, True)),
    "proxy_nca_pp": (lambda: ProxyNCAPlusPlusLoss(CLASSES, SIZE, 0.3),
                     reference.nca(1 / 0.3, True)),
}


class Recorded:
    """The pairs and factors that a method drew: `recorded(i, j)` is λ of a pair."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.factors: dict[tuple[int, int], float] = {}
        build, draw = metrix.build_mixing_pairs, metrix.draw_lambdas

        def building(*args):
            self.pairs = build(*args)
            return self.pairs

        def drawing(*args, **kwargs):
            lambda_V = draw(*args, **kwargs)
            pairs = zip(self.pairs.first.tolist(), self.pairs.second.tolist(), strict=True)
            self.factors = dict(zip(pairs, lambda_V.tolist(), strict=True))
            assert len(self.factors) == len(self.pairs)  # each distinct pair once
            return lambda_V

        monkeypatch.setattr(metrix, "build_mixing_pairs", building)
        monkeypatch.setattr(metrix, "draw_lambdas", drawing)

    def __call__(self, i: int, j: int) -> float:
        return self.factors[i, j]


def exists(name: str, kind: str, pairs: str) -> bool:
    if name == "proxy_anchor":
        return kind == "embed" or pairs != "anc_neg"
    return not (name.startswith("proxy_nca") and pairs == "neg_neg")


def compare(name, kind, pairs, monkeypatch, embedder=None, **options):
    torch.manual_seed(3)
    make, form = CASES[name]
    loss = make().double()
    if name == "contrastive over anchors":
        options["average"] = "anchors"
    method = Metrix(loss, types=[kind], pairs=[pairs], w=0.7, **options)
    embedder = embedder or tiny_embedder()
    images = torch.randn(len(LABELS), 3, 6, 6, dtype=torch.float64)
    recorded = Recorded(monkeypatch)
    value, logs = method(embedder, images, LABELS)
    parameters = [*embedder.parameters(), *loss.parameters()]
    gradients = torch.autograd.grad(value, parameters)

    features = embedder.features(images)
    x = embedder.embed(features)
    given = {"input": images, "feature": features, "embed": x}[kind]
    arguments = (form, embedder, kind, pairs, given, x, LABELS)
    k = options.get("hard_negatives", {"input": 3}).get(kind)
    if name == "proxy_anchor":
        mixed = reference.mixed_loss_of_proxy_anchors(*arguments, loss.proxies, recorded, k)
    elif name.startswith("proxy_nca"):
        mixed = reference.mixed_loss_of_proxy_others(*arguments, loss.proxies, recorded, k)
    else:
        lone = options.get("anc_neg_anchors") == "lone"
        mixed = reference.mixed_loss_of_samples(*arguments, recorded, k, lone)
    expected = loss(x, LABELS) + 0.7 * mixed
    assert recorded.factors
    assert torch.allclose(logs["loss_mixed"], mixed, rtol=1e-9, atol=1e-12)
    assert torch.allclose(value, expected, rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-7, atol=1e-10)
    return mixed


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_loop(name, kind, pairs, monkeypatch):
    if exists(name, kind, pairs):
        mixed = compare(name, kind, pairs, monkeypatch, hard_negatives={})
        # NCA has no anchors if no sum has a positive
        assert (mixed == 0) == (name == "nca" and pairs == "neg_neg")
    else:
        with pytest.raises(Exception, match="leaves nothing to mix"):
            compare(name, kind, pairs, monkeypatch)


@pytest.mark.parametrize("name", ["contrastive", "ms", "proxy_anchor", "proxy_nca_pp"])
@pytest.mark.parametrize("kind", TYPES)
def test_equals_the_loop_with_hard_negatives_and_a_factor_per_pair(name, kind, monkeypatch):
    options = {"lambda_per": "pair", "hard_negatives": {"input": 2, "feature": 2, "embed": 2}}
    compare(name, kind, "pos_neg", monkeypatch, **options)


@pytest.mark.parametrize("name", ["contrastive", "contrastive over anchors", "ms", "nca"])
@pytest.mark.parametrize("pairs", ["anc_neg", "pos_neg"])
def test_anchor_negative_pairs_of_lone_anchors_only(name, pairs, monkeypatch):
    mixed = compare(name, "embed", pairs, monkeypatch, anc_neg_anchors="lone")
    assert mixed != 0


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", ["ms", "proxy_anchor", "proxy_nca_pp"])
def test_hard_negatives_of_every_kind_of_pairs(name, pairs, monkeypatch):
    if exists(name, "embed", pairs):
        compare(name, "embed", pairs, monkeypatch, hard_negatives={"embed": 2})


def test_three_hard_negatives_are_mixed_into_images_by_default(monkeypatch):
    compare("ms", "input", "pos_neg", monkeypatch)


def test_positives_of_mixed_images_are_drawn_at_random():
    x = normalize(torch.randn(7, 5, dtype=torch.float64), dim=1)
    options = {"types": ["input", "embed"], "pairs": ["pos_neg"], "hard_negatives": {}}
    method = Metrix(pml.MultiSimilarityLoss(), input_positives=1, **options)
    everyone = {a: {i for i in range(7) if LABELS[i] == LABELS[a] and i != a} for a in range(7)}

    def positives(kind):
        _, _, pairs = method.select_pairs(x, LABELS, kind, "pos_neg")
        rows = zip(pairs.of_anchor, pairs.present, strict=True)
        return {a: set(pairs.first[row[real]].tolist()) for a, (row, real) in enumerate(rows)}

    torch.manual_seed(0)
    drawn = Counter()
    for _ in range(100):
        for a, some in positives("input").items():
            assert some <= everyone[a]
            assert len(some) == min(1, len(everyone[a]))
            drawn.update((a, i) for i in some)
    assert len(drawn) == 8  # the class of three in both ways, and a pair
    assert all(30 < drawn[a, i] < 70 for a in (1, 2, 6) for i in everyone[a])
    assert positives("embed") == everyone


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("make", [pml.MultiSimilarityLoss, lambda: pml.ProxyAnchorLoss(5, 5)])
def test_factors_near_a_half_for_a_large_alpha(kind, make):
    """Mixes and their loss are then those of λ = 1/2, whatever is drawn."""
    torch.manual_seed(0)
    embedder, images = tiny_embedder(), torch.randn(7, 3, 6, 6, dtype=torch.float64)
    options = {"types": [kind], "pairs": ["pos_neg"], "hard_negatives": {}}
    method = Metrix(make().double(), alpha=1e8, **options)
    features = embedder.features(images)
    x = embedder.embed(features)
    given = {"input": images, "feature": features, "embed": x}[kind]
    _, _, pairs = method.select_pairs(normalize(x, dim=1), LABELS, kind, "pos_neg")
    both = list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    halves = [reference.embed_mix(embedder, kind, given, i, j, 0.5) for i, j in both]
    (mixes,) = method.extra_embeddings(embedder, [(images, LABELS)])
    torch.testing.assert_close(mixes, torch.stack(halves), rtol=0, atol=1e-3)
    losses = [method(embedder, images, LABELS)[1]["loss_mixed"] for _ in range(2)]
    torch.testing.assert_close(*losses, rtol=1e-3, atol=0)


def test_a_miner_chooses_pairs_of_the_clean_loss_alone():
    embedder, images = tiny_embedder(), torch.randn(7, 3, 6, 6, dtype=torch.float64)
    first, second = torch.tensor([1]), torch.tensor([2])
    mined = (first, second, first, torch.tensor([3]))
    options = {"types": ["embed"], "pairs": ["pos_neg"]}
    loss, logs = pml.MultiSimilarityLoss(), []
    for miner in (None, lambda x, y: mined):
        torch.manual_seed(1)
        logs.append(Metrix(loss, miner, **options)(embedder, images, LABELS)[1])
    x = embedder(images)
    torch.testing.assert_close(logs[0]["loss_clean"], loss(x, LABELS))
    torch.testing.assert_close(logs[1]["loss_clean"], loss(x, LABELS, mined))
    assert logs[0]["loss_clean"] != logs[1]["loss_clean"]
    assert logs[0]["loss_mixed"] == logs[1]["loss_mixed"]


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("maps", "avg"), ("maps", "max"), ("tokens", "token"), ("tokens", "mean")],
)
def test_features_of_every_pooling(kind, pooling, monkeypatch):
    torch.manual_seed(0)
    embedder = tiny_embedder(kind, pooling)
    compare("ms", "feature", "pos_neg", monkeypatch, embedder, lambda_per="pair")
