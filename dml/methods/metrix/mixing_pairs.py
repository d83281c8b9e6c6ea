"""Pairs of examples that are mixed for each anchor (metrix, M(a)), without duplicates.

Shapes: A anchors, S sources (the batch's samples, then proxies if they are mixed too), V distinct
pairs, K the largest number of pairs per anchor, E (anchor, pair) and F (anchor, first source)
incidences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

PairKind = Literal["pos_neg", "anc_neg", "pos_pos", "neg_neg"]
PAIRS: tuple[PairKind, ...] = get_args(PairKind)


@dataclass(frozen=True)
class MixingPairs:
    """Pairs of sources, and the anchors that are compared with their mixes.

    Attributes:
        first, second: indices of the mixed sources (V); the first has weight λ.
        of_anchor: pair indices of each anchor (A×K), padded with 0.
        present: mask of the entries that are not padding (A×K).
        kind: one of `PAIRS`.
    """

    first: Tensor
    second: Tensor
    of_anchor: Tensor
    present: Tensor
    kind: str

    def __len__(self) -> int:
        return len(self.first)

    def labels(self, lambda_V: Tensor) -> Tensor:
        """Returns the labels of the mixes for each anchor, in [0, 1]: λ y + (1 − λ) y' (A×K)."""
        lambda_AK = lambda_V[self.of_anchor]
        if self.kind == "pos_pos":
            return torch.ones_like(lambda_AK)
        return torch.zeros_like(lambda_AK) if self.kind == "neg_neg" else lambda_AK


def build_mixing_pairs(
    kind: str, positive_AS: Tensor, negative_AS: Tensor, anchor_A: Tensor
) -> MixingPairs:
    """Returns the mixed pairs M(a) of all anchors.

    Args:
        kind: "pos_neg" (U⁺×U⁻), "anc_neg" (S×U⁻), "pos_pos" (U⁺×U⁺) or "neg_neg" (U⁻×U⁻). The
            last two include pairs of an example with itself, whose mix is the example.
        positive_AS: mask of the positives of each anchor, without the anchor.
        negative_AS: mask of the negatives of each anchor.
        anchor_A: source index of each anchor, for "anc_neg".
    """
    number_of_sources = positive_AS.shape[1]
    first_AS = negative_AS if kind == "neg_neg" else positive_AS
    second_AS = positive_AS if kind == "pos_pos" else negative_AS
    count_A = second_AS.sum(dim=1)
    if kind != "anc_neg":
        count_A = count_A * first_AS.sum(dim=1)
    # The CPU needs these sizes; reading them together waits for a GPU only once.
    firsts, incidences, longest = torch.stack(
        [first_AS.sum(), count_A.sum(), count_A.max()]
    ).tolist()
    if kind == "anc_neg":
        anchor_E, second_E = _list_true(second_AS, incidences)
        first_E = anchor_A[anchor_E]
    else:
        anchor_F, first_F = _list_true(first_AS, firsts)
        row_E, second_E = _list_true(second_AS[anchor_F], incidences)
        anchor_E, first_E = anchor_F[row_E], first_F[row_E]
    # A mix does not depend on the anchor: the anchors of a class share mixes.
    code_V, pair_E = (first_E * number_of_sources + second_E).unique(return_inverse=True)
    pair_AK, present_AK = _pad_by_anchor(anchor_E, pair_E, count_A, longest)
    first_V = code_V.div(number_of_sources, rounding_mode="floor")
    return MixingPairs(first_V, code_V % number_of_sources, pair_AK, present_AK, kind)


def keep_hardest(negative_AS: Tensor, s_AS: Tensor, k: int | None) -> Tensor:
    """Returns the mask of each anchor's k most similar negatives (A×S); of all for None."""
    if k is None or k >= negative_AS.shape[1]:
        return negative_AS
    nearest_Ak = s_AS.detach().masked_fill(~negative_AS, -torch.inf).topk(k, dim=1).indices
    kept_AS = torch.zeros_like(negative_AS).scatter_(1, nearest_Ak, True)
    return kept_AS & negative_AS


def draw_lambdas(pairs: int, concentration: float, per: str, like: Tensor) -> Tensor:
    """Returns λ ~ Beta(α, α): one value for the batch (repeated) or one per pair.

    Values are drawn on the CPU, so that they are the same for a GPU.

    Args:
        pairs: number of values.
        concentration: α > 0.
        per: "batch" or "pair".
        like: type and device of the result.
    """
    alpha = torch.tensor(concentration, dtype=torch.float64)
    beta = torch.distributions.Beta(alpha, alpha)
    lambdas = beta.sample((pairs,)) if per == "pair" else beta.sample().expand(pairs)
    return lambdas.to(like, non_blocking=True)


def _list_true(mask: Tensor, count: int) -> tuple[Tensor, ...]:
    """Returns rows and columns of the `count` true entries of a matrix, in order."""
    return torch.nonzero_static(mask, size=count).unbind(dim=1)


def _pad_by_anchor(
    anchor_E: Tensor, pair_E: Tensor, count_A: Tensor, longest: int
) -> tuple[Tensor, Tensor]:
    """Returns pairs sorted by anchor as a padded matrix with one row per anchor, and its mask."""
    start_A = count_A.cumsum(0) - count_A
    column_E = torch.arange(len(anchor_E), device=anchor_E.device) - start_A[anchor_E]
    pair_AK = anchor_E.new_zeros(len(count_A), longest)
    pair_AK[anchor_E, column_E] = pair_E
    present_AK = torch.arange(longest, device=anchor_E.device) < count_A[:, None]
    return pair_AK, present_AK
