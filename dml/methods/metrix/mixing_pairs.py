"""Which examples are mixed for which anchor (metrix, M(a)), each distinct pair once.

Shapes: A anchors, S sources (the batch's samples, then proxies if they are mixed too), V distinct
pairs, K pairs of the anchor that has most, E (anchor, pair) incidences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PAIRS = ("pos_neg", "anc_neg", "pos_pos", "neg_neg")


@dataclass(frozen=True)
class Pairs:
    """Pairs of sources and who meets their mixes.

    Attributes:
        first, second: which sources are mixed (V), the first with weight λ.
        of_anchor: the pairs of each anchor (A×K); padding is 0.
        present: what of it is no padding (A×K).
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
        """Labels of the mixes for each anchor, in [0, 1]: λ y + (1 − λ) y' (A×K)."""
        lambda_AK = lambda_V[self.of_anchor]
        if self.kind == "pos_pos":
            return torch.ones_like(lambda_AK)
        return torch.zeros_like(lambda_AK) if self.kind == "neg_neg" else lambda_AK


def mixing_pairs(kind: str, positive_AS: Tensor, negative_AS: Tensor, own_A: Tensor) -> Pairs:
    """Builds M(a) for all anchors.

    Args:
        kind: "pos_neg" (U⁺×U⁻), "anc_neg" (S×U⁻), "pos_pos" (U⁺×U⁺) or "neg_neg" (U⁻×U⁻). In a
            square an example also meets itself, which is no mix but the example.
        positive_AS: which sources are positives of an anchor (itself not among them).
        negative_AS: which are negatives.
        own_A: the source that is the anchor itself, for "anc_neg".
    """
    number_of_sources = positive_AS.shape[1]
    if kind == "anc_neg":
        anchor_E, second_E = negative_AS.nonzero(as_tuple=True)
        first_E = own_A[anchor_E]
    else:
        first_AS = negative_AS if kind == "neg_neg" else positive_AS
        second_AS = positive_AS if kind == "pos_pos" else negative_AS
        anchor_F, first_F = first_AS.nonzero(as_tuple=True)
        row_E, second_E = second_AS[anchor_F].nonzero(as_tuple=True)
        anchor_E, first_E = anchor_F[row_E], first_F[row_E]
    # A mix does not depend on who asks: anchors of a class share theirs.
    code_V, pair_E = (first_E * number_of_sources + second_E).unique(return_inverse=True)
    pair_AK, present_AK = _padded(anchor_E, pair_E, len(positive_AS))
    first_V = code_V.div(number_of_sources, rounding_mode="floor")
    return Pairs(first_V, code_V % number_of_sources, pair_AK, present_AK, kind)


def hardest(negative_AS: Tensor, s_AS: Tensor, k: int | None) -> Tensor:
    """Keeps the k negatives of each anchor that are most similar to it; all for None (A×S)."""
    if k is None or k >= negative_AS.shape[1]:
        return negative_AS
    nearest_Ak = s_AS.detach().masked_fill(~negative_AS, -torch.inf).topk(k, dim=1).indices
    kept_AS = torch.zeros_like(negative_AS).scatter_(1, nearest_Ak, True)
    return kept_AS & negative_AS


def draw_lambdas(pairs: int, concentration: float, per: str, like: Tensor) -> Tensor:
    """Draws λ ~ Beta(α, α): one for the batch (repeated) or one for each pair.

    Always from the CPU's generator, so that a GPU mixes with the same factors.

    Args:
        pairs: how many values to return.
        concentration: α > 0.
        per: "batch" or "pair".
        like: gives type and device of the result.
    """
    alpha = torch.tensor(concentration, dtype=torch.float64)
    beta = torch.distributions.Beta(alpha, alpha)
    drawn = beta.sample((pairs,)) if per == "pair" else beta.sample().expand(pairs)
    return drawn.to(like)


def _padded(anchor_E: Tensor, pair_E: Tensor, anchors: int) -> tuple[Tensor, Tensor]:
    """Lists sorted by anchor as a matrix with a row for each, and where it is filled."""
    count_A = torch.bincount(anchor_E, minlength=anchors)
    start_A = count_A.cumsum(0) - count_A
    column_E = torch.arange(len(anchor_E), device=anchor_E.device) - start_A[anchor_E]
    longest = int(count_A.max()) if len(anchor_E) else 0
    pair_AK = anchor_E.new_zeros(anchors, longest)
    pair_AK[anchor_E, column_E] = pair_E
    present_AK = torch.arange(longest, device=anchor_E.device) < count_A[:, None]
    return pair_AK, present_AK
