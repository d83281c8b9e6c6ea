"""Pooled mixes equal the direct form."""

import pytest
import torch

import dml.methods.metrix.mixed_pooling as pooling
from dml.methods.metrix.mixed_pooling import max_pool_mixes, mix, pool_mixes
from tests.methods.tiny_embedder import tiny_embedder


def all_pairs(size):
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    return pairs[:, 0], pairs[:, 1]


def test_average_pooling_and_a_linear_head_mix_embeddings():
    torch.manual_seed(0)
    embedder = tiny_embedder(pooling="avg")
    features = embedder.features(torch.randn(4, 3, 6, 6, dtype=torch.float64))
    first, second = all_pairs(4)
    lam = torch.rand(16, dtype=torch.float64)
    mixed = embedder.head(pool_mixes(embedder, features, first, second, lam))
    before_normalizing = embedder.head(embedder.pool(features))
    torch.testing.assert_close(mixed, mix(before_normalizing, first, second, lam))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("maps", ["avg", "max", "avg+max"])
def test_pooled_mixes_are_pools_of_the_mixes_in_every_precision(maps, dtype):
    torch.manual_seed(0)
    embedder = tiny_embedder(pooling=maps)
    features = torch.randn(4, 6, 3, 5).to(dtype)
    first, second = all_pairs(4)
    lam = torch.rand(16)
    pooled = pool_mixes(embedder, features, first, second, lam)
    assert pooled.dtype == torch.promote_types(dtype, torch.float32)
    direct = embedder.pool(mix(features.double(), first, second, lam))
    rounding = 1e-6
    if "avg" in maps:  # an average is rounded before it is mixed
        rounding = max(rounding, torch.finfo(dtype).eps)
    torch.testing.assert_close(pooled.double(), direct, rtol=0, atol=rounding)


# 255 positions are numbered in a byte, 256 need more
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 7), (15, 17), (16, 16), (1, 257), (17, 17)])
@pytest.mark.parametrize("chunk", [1, 2**21])
def test_maximum_of_mixes_equals_the_direct_form(shape, chunk, monkeypatch):
    monkeypatch.setattr(pooling, "CHUNK", {"cpu": chunk})
    torch.manual_seed(0)
    maps = torch.randn(4, 5, *shape, dtype=torch.float64).relu()  # zeros tie
    maps[0, 0, 0, 0] = maps[1, 1, -1, -1] = 9  # maxima at the first and the last position
    maps.requires_grad_()
    first, second = all_pairs(4)
    lam = torch.rand(16, dtype=torch.float64)
    direct = mix(maps, first, second, lam).flatten(2).max(dim=2).values  # the first of equals
    ours = max_pool_mixes(maps, first, second, lam)
    torch.testing.assert_close(ours, direct)
    weights = torch.randn_like(ours)
    (mine,) = torch.autograd.grad((ours * weights).sum(), maps)
    (theirs,) = torch.autograd.grad((direct * weights).sum(), maps)
    torch.testing.assert_close(mine, theirs)
    bound = mix(maps.amax(dim=(2, 3)), first, second, lam)
    assert (ours <= bound + 1e-12).all()
    assert shape == (1, 1) or (ours < bound - 1e-3).any()


def test_gradients_do_not_depend_on_the_order_of_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = torch.randn(128, 512, requires_grad=True)
        first, second = torch.randint(128, (2, 4000))
        gradients = [
            torch.autograd.grad(mix(x, first, second, torch.full((4000,), 0.3)).square().sum(), x)
            for _ in range(5)
        ]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradient, gradients[0][0]) for (gradient,) in gradients)
