"""What must hold of mixing, whatever the network."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml

import dml.methods.metrix_pooling as pooling
from dml.core.errors import UserError
from dml.losses import generic_forms as forms
from dml.methods.metrix import Metrix
from dml.methods.metrix_pairs import draw_lambdas, hardest
from dml.methods.metrix_pooling import mix, mixed_max, mixed_pool
from dml.methods.plain import Plain
from tests.methods.tiny_embedder import tiny_embedder

FORMS = [
    forms.EuclideanContrastive(1.2, 0.1),
    forms.CosineContrastive(0.1),
    forms.MultiSimilarity(3, 7, 0.2),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_one_to_one_mixes_at_both_ends_add_up_to_the_clean_loss(form):
    torch.manual_seed(0)
    pos, neg = torch.rand(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    there = torch.ones(3, 4, dtype=torch.bool)
    one, zero = torch.ones_like(pos), torch.zeros_like(pos)
    clean = form.loss(
        torch.cat([pos, neg], 1), torch.cat([one, zero], 1), torch.cat([there, there], 1)
    )
    ends = form.loss(pos, one, there) + form.loss(neg, zero, there)  # λ = 1 is p, λ = 0 is n
    torch.testing.assert_close(ends, clean)
    assert clean.abs() > 0.1


@given(
    beta=st.floats(0.1, 50),
    gamma=st.floats(0.1, 50),
    margin=st.floats(-0.5, 0.9),
    lam=st.floats(0.02, 0.98),
)
@settings(max_examples=60, deadline=None)
def test_a_single_mix_turns_from_positive_to_negative_where_the_paper_says(
    beta, gamma, margin, lam
):
    form = forms.MultiSimilarity(beta, gamma, margin)
    turning = margin + math.log(lam / (1 - lam)) / (beta + gamma)
    y, there = torch.tensor([[lam]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)

    def derivative(s):
        s = torch.tensor([[s]], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(form.loss(s, y, there), s)
        return slope.item()

    assert derivative(turning - 1e-3) < 0 < derivative(turning + 1e-3)
    assert abs(derivative(turning)) < 1e-9


def all_pairs(size):
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    return pairs[:, 0], pairs[:, 1]


def test_average_pooling_and_a_linear_head_mix_embeddings():
    torch.manual_seed(0)
    embedder = tiny_embedder(pooling="avg")
    features = embedder.features(torch.randn(4, 3, 6, 6, dtype=torch.float64))
    first, second = all_pairs(4)
    lam = torch.rand(16, dtype=torch.float64)
    mixed = embedder.head(mixed_pool(embedder, features, first, second, lam))
    before_normalizing = embedder.head(embedder.pool(features))
    torch.testing.assert_close(mixed, mix(before_normalizing, first, second, lam))


@pytest.mark.parametrize("side", [1, 3, 17])  # 289 positions need more than a byte
@pytest.mark.parametrize("chunk", [1, 2**21])
def test_maximum_of_mixes_equals_the_direct_form(side, chunk, monkeypatch):
    monkeypatch.setattr(pooling, "CHUNK", {"cpu": chunk})
    torch.manual_seed(0)
    maps = torch.randn(4, 5, side, side, dtype=torch.float64)
    maps.relu_().requires_grad_()  # zeros tie
    first, second = all_pairs(4)
    lam = torch.rand(16, dtype=torch.float64)
    direct = mix(maps, first, second, lam).flatten(2).max(dim=2).values  # the first of equals
    ours = mixed_max(maps, first, second, lam)
    torch.testing.assert_close(ours, direct)
    weights = torch.randn_like(ours)
    (mine,) = torch.autograd.grad((ours * weights).sum(), maps)
    (theirs,) = torch.autograd.grad((direct * weights).sum(), maps)
    torch.testing.assert_close(mine, theirs)
    bound = mix(maps.amax(dim=(2, 3)), first, second, lam)
    assert (ours <= bound + 1e-12).all()
    assert side == 1 or (ours < bound - 1e-3).any()


def test_maximum_of_half_precision_maps_is_found_in_float32():
    maps = torch.randn(3, 4, 5, 5).bfloat16().requires_grad_()
    first, second = all_pairs(3)
    lam = torch.full((9,), 0.3)
    pooled = mixed_max(maps, first, second, lam)
    direct = mix(maps.detach().float(), first, second, lam).amax(dim=(2, 3))
    torch.testing.assert_close(pooled, direct)
    pooled.sum().backward()
    assert maps.grad.dtype == torch.bfloat16


def test_nan_maps_give_nan_not_an_index_out_of_range():
    maps = torch.full((2, 1, 2, 2), torch.nan, requires_grad=True)
    pooled = mixed_max(maps, torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5]))
    pooled.sum().backward()
    assert pooled.isnan().all()


def test_hardest_keeps_the_nearest_and_no_one_else():
    s = torch.tensor([[0.9, 0.1, 0.5, 0.7]])
    negative = torch.tensor([[False, True, True, True]])
    assert hardest(negative, s, 2).tolist() == [[False, False, True, True]]
    assert torch.equal(hardest(negative, s, None), negative)
    assert torch.equal(hardest(torch.tensor([[False, True, False, False]]), s, 2)[0].nonzero(),
                       torch.tensor([[1]]))  # fmt: skip


def test_factors_follow_the_beta_distribution():
    torch.manual_seed(0)
    like = torch.zeros(())
    each = draw_lambdas(20000, 2.0, "pair", like)
    assert abs(each.mean() - 0.5) < 0.01
    assert abs(each.var() - 1 / 20) < 0.002  # 1 / (4 (2α + 1))
    assert len(draw_lambdas(5, 2.0, "batch", like).unique()) == 1


LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def forward(method, labels=LABELS):
    torch.manual_seed(1)
    embedder = tiny_embedder()
    images = torch.randn(len(labels), 3, 6, 6, dtype=torch.float64)
    return method(embedder, images, labels)


def test_without_weight_it_is_the_plain_loss():
    loss = pml.MultiSimilarityLoss()
    ours, plain = forward(Metrix(loss, w=0.0))[0], forward(Plain(loss))[0]
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("types", [["input"], ["feature"], ["embed"]])
@pytest.mark.parametrize("labels", [[0] * 7, list(range(7))])
def test_a_batch_with_nothing_to_mix_is_no_error(types, labels):
    labels = torch.tensor(labels)
    method = Metrix(pml.MultiSimilarityLoss(), types=types, pairs=["pos_neg"])
    value, logs = forward(method, labels)
    value.backward()
    assert logs["loss_mixed"] == 0
    assert value.isfinite()


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
    counts = [seen.count((k, p)) for k in metrix_types() for p in ("pos_neg", "anc_neg")]
    assert sum(counts) == 300
    assert min(counts) > 25


def metrix_types():
    from dml.methods.metrix import TYPES

    return TYPES


def test_few_positives_make_few_mixed_images(monkeypatch):
    sizes = []
    embedder = tiny_embedder()
    count = embedder.backbone.register_forward_pre_hook(lambda m, args: sizes.append(len(args[0])))
    images = torch.randn(12, 3, 6, 6, dtype=torch.float64)
    labels = torch.arange(12) // 4
    for positives in (None, 1):
        method = Metrix(
            pml.MultiSimilarityLoss(), types="input", pairs="pos_neg",
            hard_negatives={"input": 2}, input_positives=positives,
        )  # fmt: skip
        method(embedder, images, labels)
    count.remove()
    assert sizes[0] == sizes[2] == 12
    assert sizes[3] <= 12 * 2 * 1 < sizes[1]


def test_proxies_are_not_copied():
    loss = pml.ProxyAnchorLoss(5, 5)
    method = Metrix(loss)
    assert [name for name, _ in method.named_parameters()] == ["loss.proxies"]
    assert list(method.state_dict()) == ["loss.proxies"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"types": ["feature", "embedding"]}, r"method\.types: no 'embedding'; did you mean"),
        ({"types": []}, r"method\.types is empty"),
        ({"pairs": ["anchor"]}, r"method\.pairs: no 'anchor'"),
        ({"w": -1}, r"method\.w=-1 must be at least 0"),
        ({"alpha": 0}, r"method\.alpha=0 must be above 0"),
        ({"lambda_per": "anchor"}, r"method\.lambda_per"),
        ({"hard_negatives": {"inputs": 3}}, r"method\.hard_negatives: no 'inputs'"),
        ({"hard_negatives": {"input": 0}}, r"method\.hard_negatives\.input=0"),
        ({"hard_negatives": {"embed": 2.5}}, r"method\.hard_negatives\.embed=2\.5 must be a whole"),
        ({"hard_negatives": 5}, r"method\.hard_negatives=5 must say .* \{feature: 5\}"),
        ({"types": None}, r"method\.types=null must be a list of \[input, feature, embed\]"),
        ({"input_positives": 0}, r"method\.input_positives=0"),
    ],
)
def test_a_wrong_option_is_one_line(options, message):
    with pytest.raises(UserError, match=message) as caught:
        Metrix(pml.MultiSimilarityLoss(), **options)
    assert "\n" not in str(caught.value)


def test_anchor_negative_mixes_of_proxies_exist_in_embedding_space_only():
    loss = pml.ProxyAnchorLoss(5, 5)
    assert Metrix(loss, types=["feature", "embed"]).pairs == {
        "feature": ["pos_neg"],
        "embed": ["pos_neg", "anc_neg"],
    }
    with pytest.raises(UserError, match=r"method\.pairs=\[anc_neg\] with type 'input'.*pos_neg"):
        Metrix(loss, types=["input"], pairs=["anc_neg"])


def test_autocast_leaves_the_loss_in_full_precision():
    torch.manual_seed(0)
    embedder = tiny_embedder().float()
    images = torch.randn(7, 3, 6, 6)
    method = Metrix(pml.MultiSimilarityLoss(2, 5), types=["feature"], pairs=["pos_neg"])
    values = []
    for autocast in (False, True):
        torch.manual_seed(2)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            value, _ = method(embedder, images, LABELS)
        value.backward()
        values.append(value)
    assert values[1].dtype == torch.float32
    assert values[0] != values[1]
    torch.testing.assert_close(values[0], values[1], rtol=0.05, atol=0.02)
    unit = F.normalize(embedder(images), dim=1)
    assert unit.dtype == torch.float32


def test_the_benchmarks_direct_form_computes_the_same():
    from scripts.benchmarks.metrix import DirectMetrix

    values = []
    for cls in (Metrix, DirectMetrix):
        value, _ = forward(cls(pml.MultiSimilarityLoss(3, 7, 0.2), pairs=["pos_neg"]))
        values.append(value)
    torch.testing.assert_close(*values, rtol=1e-10, atol=0)
