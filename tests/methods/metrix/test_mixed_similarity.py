"""Mixed similarities do not depend on the chunks in which they are computed."""

from __future__ import annotations

import pytest
import torch

from dml.losses.cosine import unit_rows
from dml.losses.generic.forms import ProxyNCA
from dml.methods.metrix import mixed_similarity
from dml.methods.metrix.mixing_pairs import MixingPairs


@pytest.mark.parametrize("rows", [1, 3, 4, 6])
@pytest.mark.parametrize("embedded", [True, False])
def test_the_mean_over_mixes_does_not_depend_on_chunks(rows, embedded, monkeypatch):
    """Seven mixes, so that the last chunk is shorter than the others."""
    torch.manual_seed(0)
    classes, mixes = 5, 7
    first, second = torch.randint(6, (2, mixes))
    of_anchor = torch.arange(mixes)[None]
    pairs = MixingPairs(first, second, of_anchor, of_anchor >= 0, "pos_neg")
    weights = torch.rand(mixes, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    images = torch.randn(6, 4, dtype=torch.float64)
    made = unit_rows(torch.randn(mixes, 4, dtype=torch.float64))[0]
    form = ProxyNCA(scale=3.0)

    def loss_and_gradients(chunk):
        monkeypatch.setattr(mixed_similarity, "CHUNK", chunk)
        leaves = [t.clone().requires_grad_() for t in (proxies, images, made)]
        proxies_CD, x_BD, v_VD = leaves
        loss = mixed_similarity.compute_mixed_proxy_loss(
            form,
            proxies_CD,
            unit_rows(x_BD)[0],
            v_VD if embedded else None,
            labels,
            pairs,
            weights,
        )
        used = [proxies_CD, v_VD if embedded else x_BD]
        return [loss, *torch.autograd.grad(loss, used)]

    proxies = torch.randn(classes, 4, dtype=torch.float64)
    whole = loss_and_gradients(classes * mixes)
    for found, expected in zip(loss_and_gradients(classes * rows), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
