"""Losses of users with a generic form, and forms that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize, softplus

from dml.core.errors import UserError
from dml.losses.generic import (
    GenericPairLoss,
    GenericProxyLoss,
    MultiSimilarityLoss,
    OriginalProxyNCALoss,
    ProxyAnchorLoss,
    find_generic_form,
)
from dml.losses.generic.forms import Form
from dml.methods.metrix import TYPES, Metrix
from dml.methods.metrix.mixing_pairs import PAIRS
from dml.methods.mixing_baselines import IMix, MoCHi, ProxySynthesis
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])  # an anchor without a positive, an absent class
BETA, GAMMA, MARGIN = 3.0, 7.0, 0.2


class WrittenOutMS(Form):
    """Multi-similarity as its equation, without a care for large exponents."""

    def terms(self, s, positive, negative):
        pull = (positive * (-BETA * (s - MARGIN)).exp()).sum(dim=1)
        push = (negative * (GAMMA * (s - MARGIN)).exp()).sum(dim=1)
        return torch.log1p(pull) / BETA, torch.log1p(push) / GAMMA


class WrittenOutProxyAnchor(Form):
    anchors = "proxies"

    def loss(self, s, y, present):
        pull, push = self.terms(s, y * present, (1 - y) * present)
        with_positive = (y * present > 0).any(dim=1).sum().clamp_min(1)
        return pull.sum() / with_positive + push.sum() / max(1, len(push))

    def terms(self, s, positive, negative):
        pull = (positive * (-4 * (s - 0.1)).exp()).sum(dim=1)
        push = (negative * (4 * (s + 0.1)).exp()).sum(dim=1)
        return torch.log1p(pull), torch.log1p(push)


class WrittenOutProxyNCA(Form):
    others = "proxies"

    def terms(self, s, positive, negative):
        some = (positive > 0).any(dim=1)
        pull = torch.where(some, (positive * s.exp()).sum(dim=1), 1).log()
        below = (negative * s.exp()).sum(dim=1)
        return -pull, torch.where(below > 0, below, 1).log()


class CustomProxyNCA(GenericProxyLoss):
    mined_images = "anchors"


class CustomModule(nn.Module):
    """A loss with a forward of its own, and the form of the mixed examples."""

    form = WrittenOutMS()

    def forward(self, embeddings, labels):
        s = normalize(embeddings) @ normalize(embeddings).T
        same = labels[:, None] == labels
        positive = same & ~torch.eye(len(labels), dtype=torch.bool)
        return self.form.loss(s, positive.to(s), positive | ~same)


PAIR_LOSSES = {
    "pairs": (
        lambda: GenericPairLoss(WrittenOutMS()),
        lambda: MultiSimilarityLoss(BETA, GAMMA, MARGIN),
    ),
    "module": (CustomModule, lambda: MultiSimilarityLoss(BETA, GAMMA, MARGIN)),
}
PROXY_LOSSES = {
    "proxy anchor": (
        lambda: GenericProxyLoss(5, 5, WrittenOutProxyAnchor()),
        lambda: ProxyAnchorLoss(5, 5, margin=0.1, alpha=4),
    ),
    "proxy nca": (
        lambda: CustomProxyNCA(5, 5, WrittenOutProxyNCA()),
        lambda: OriginalProxyNCALoss(5, 5),
    ),
}
BOTH = PAIR_LOSSES | PROXY_LOSSES


def step(make_loss, make_method, scale=1.0):
    """The loss of a batch in float64, and the gradients of network and proxies."""
    torch.manual_seed(1)
    method = make_method(make_loss()).double()
    embedder = tiny_embedder()
    images = torch.randn(len(LABELS), 3, 6, 6, dtype=torch.float64)
    torch.manual_seed(2)
    loss, _ = method(embedder, images, LABELS)
    loss.backward()
    trained = [*embedder.parameters(), *method.parameters()]
    return loss.detach(), torch.cat([p.grad.flatten() for p in trained if p.grad is not None])


def assert_equal_to_the_packaged(case, make_method):
    custom, packaged = BOTH[case]
    found, expected = step(custom, make_method), step(packaged, make_method)
    assert expected[1].any()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("mix_type", TYPES)
@pytest.mark.parametrize("case", BOTH)
def test_a_written_out_form_under_metrix_is_the_loss_of_this_package(case, mix_type, pairs):
    def make(loss):
        return Metrix(loss, types=[mix_type], pairs=[pairs], w=0.7)

    try:
        make(BOTH[case][1]())
    except UserError:  # proxies have neither images nor mixes without a positive
        with pytest.raises(UserError, match="leaves nothing to mix"):
            make(BOTH[case][0]())
        return
    assert_equal_to_the_packaged(case, make)


@pytest.mark.parametrize("make", [IMix, MoCHi])
@pytest.mark.parametrize("case", PAIR_LOSSES)
def test_other_methods_that_mix_pairs_take_it(case, make):
    assert_equal_to_the_packaged(case, make)


@pytest.mark.parametrize("case", PROXY_LOSSES)
def test_synthetic_proxies_take_it(case):
    assert_equal_to_the_packaged(case, ProxySynthesis)


def with_terms(terms, **attributes):
    return type("Custom", (Form,), {"terms": terms, **attributes})()


def sums(self, s, positive, negative):
    return (positive * -s).sum(), (negative * s).sum()


def matrices(self, s, positive, negative):
    return positive * -s, negative * s


def endless(self, s, positive, negative):
    return -(positive * s.exp()).sum(dim=1).log(), (negative * s).sum(dim=1)


def steep(self, s, positive, negative):
    return (positive * -s).sum(dim=1), (negative * s).pow(2).sum(dim=1).sqrt()


def one(self, s, positive, negative):
    return (positive * -s).sum(dim=1)


def without_gradient(self, s, positive, negative):
    return positive.sum(dim=1), negative.sum(dim=1)


def fine(self, s, positive, negative):
    return (positive * -s).sum(dim=1), (negative * s).sum(dim=1)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (with_terms(sums), r"Custom.terms must return two tensors .* shapes \[\] and \[\]"),
        (with_terms(matrices), r"Custom.terms must return two .* shapes \[3, 3\] and \[3, 3\]"),
        (with_terms(endless), "Custom.terms must be finite, with finite gradients"),
        (with_terms(steep), "Custom.terms must be finite, with finite gradients"),
        (with_terms(one), r"Custom.terms fails \(ValueError: too many values to unpack"),
        (with_terms(without_gradient), r"Custom.terms fails \(RuntimeError: element 0 of tensors"),
        (type("Custom", (Form,), {})(), r"Custom.terms fails \(NotImplementedError\)"),
        (Form, "its form is the class Form; it must be an object of it"),
        (with_terms(fine, anchors="proxies"), "its form has proxies, and Module has no parameter"),
        (with_terms(fine, others="proxies"), "its form has proxies, and Module has no parameter"),
        (None, "Module is not additive"),
    ],
)
def test_a_form_that_fails_is_refused_in_one_line(form, message):
    loss = nn.Module()
    loss.form = form
    with pytest.raises(UserError, match=f"loss: method=metrix cannot use it: {message}") as caught:
        Metrix(loss)
    text = str(caught.value)
    assert "\n" not in text
    assert "or give your loss a form, as in docs/losses_in_your_code.md" in text


def test_a_form_is_tried_without_a_change_of_the_random_numbers():
    state = torch.get_rng_state()
    find_generic_form(GenericPairLoss(with_terms(fine)))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_mixed_loss_of_a_form_weighs_shares():
    """By hand: an anchor and a mix that is its positive by 0.3."""
    s, y = torch.tensor([[0.8]]), torch.tensor([[0.3]])
    logistic = with_terms(
        lambda self, s, p, n: ((p * softplus(-s)).sum(dim=1), (n * softplus(s)).sum(dim=1))
    )
    expected = 0.3 * torch.log1p(torch.exp(-s)) + 0.7 * torch.log1p(torch.exp(s))
    torch.testing.assert_close(logistic.loss(s, y, torch.ones_like(y)), expected.squeeze())
