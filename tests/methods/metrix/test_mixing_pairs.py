"""Choice of pairs, and the factors of mixes."""

import torch

from dml.methods.metrix.mixing_pairs import draw_lambdas, keep_hardest


def test_hardest_keeps_the_nearest_and_no_one_else():
    s = torch.tensor([[0.9, 0.1, 0.5, 0.7]])
    negative = torch.tensor([[False, True, True, True]])
    assert keep_hardest(negative, s, 2).tolist() == [[False, False, True, True]]
    assert torch.equal(keep_hardest(negative, s, None), negative)
    assert torch.equal(keep_hardest(torch.tensor([[False, True, False, False]]), s, 2)[0].nonzero(),
                       torch.tensor([[1]]))  # fmt: skip


def test_factors_follow_the_beta_distribution():
    torch.manual_seed(0)
    like = torch.zeros(())
    each = draw_lambdas(20000, 2.0, "pair", like)
    assert abs(each.mean() - 0.5) < 0.01
    assert abs(each.var() - 1 / 20) < 0.002  # 1 / (4 (2α + 1))
    assert abs(torch.corrcoef(torch.stack([each, torch.arange(20000.0)]))[0, 1]) < 0.05
    wide = draw_lambdas(20000, 0.5, "pair", like)
    assert abs(wide.var() - 1 / 8) < 0.005
    assert len(draw_lambdas(5, 2.0, "batch", like).unique()) == 1
