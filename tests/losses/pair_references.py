"""Pair losses written from their equations, slow and plain, in any precision.

`self_of[i]` is the reference that is embedding i itself, or −1; None stands for −1 everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Rows = Sequence[int] | None


def similarity(x: Tensor, references: Tensor) -> Tensor:
    return F.normalize(x, dim=1) @ F.normalize(references, dim=1).T


def cwms_reference(
    x, y, references, y_ref, self_of: Rows, alpha, beta, delta, include_self=True
) -> Tensor:
    s = similarity(x, references)
    is_self = torch.zeros(s.shape, dtype=torch.bool)
    for i, j in enumerate(self_of or []):
        is_self[i, j] = j >= 0
    present = y.unique().tolist()
    positive = negative = torch.zeros((), dtype=x.dtype)
    for c in present:
        for other in y_ref.unique().tolist():
            block = s[y == c][:, y_ref == other]
            if c == other:
                terms = (-alpha * (block - delta)).exp()
                if not include_self:
                    terms = terms.masked_fill(is_self[y == c][:, y_ref == other], 0)
                positive = positive + torch.log1p(terms.mean() / 2)
            else:
                negative = negative + torch.log1p((beta * (block - delta)).exp().mean())
    return positive / (alpha * len(present)) + negative / (2 * beta * len(present))


def cbcont_reference(x, y, references, y_ref, m_p, m_n) -> Tensor:
    d = 1 - similarity(x, references)
    present = y.unique().tolist()
    total = torch.zeros((), dtype=x.dtype)
    for c in present:
        for other in y_ref.unique().tolist():
            block = d[y == c][:, y_ref == other]
            hinge = block - m_p if c == other else m_n - block
            total = total + hinge.clamp_min(0).mean()
    return total / (2 * len(present))


def clipped(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True).clamp_min(1)


def pairs(y: Tensor, y_ref: Tensor, self_of: Rows) -> list[tuple[int, int, bool]]:
    return [
        (i, j, bool(y[i] == y_ref[j]))
        for i in range(len(y))
        for j in range(len(y_ref))
        if self_of is None or self_of[i] != j
    ]


def c1_reference(x, y, references, y_ref, self_of: Rows) -> Tensor:
    s = clipped(x) @ clipped(references).T
    total = 0 * x.sum()
    for i, j, positive in pairs(y, y_ref, self_of):
        total = total + (1 - s[i, j] - 1e-5 if positive else s[i, j] - 0.5).clamp_min(0)
    return total / len(x)


def c2_reference(x, y, references, y_ref, self_of: Rows, m_p, m_n) -> Tensor:
    u, v = clipped(x), clipped(references)
    terms: dict[bool, list[Tensor]] = {True: [], False: []}
    for i, j, positive in pairs(y, y_ref, self_of):
        r = (u[i] - v[j]).norm()
        hinge = r - m_p if positive else m_n - r
        if hinge > 0:
            terms[positive].append(hinge)
    zero = 0 * x.sum()
    return sum((torch.stack(t).mean() if t else zero for t in terms.values()), zero)


def triplet_reference(x, y, references, y_ref, self_of: Rows, margin) -> Tensor:
    terms = []
    listed = pairs(y, y_ref, self_of)
    for i, p, positive in listed:
        for j, n, other in listed:
            if i == j and positive and not other:
                hinge = (x[i] - references[p]).norm() - (x[i] - references[n]).norm() + margin
                if hinge > 0:
                    terms.append(hinge)
    return torch.stack(terms).mean() if terms else 0 * x.sum()


def multi_similarity_reference(x, y, references, y_ref, self_of: Rows, *exponents) -> Tensor:
    beta, gamma, margin = exponents
    s = similarity(x, references)
    total = 0 * x.sum()
    for i in range(len(x)):
        mine = [(j, positive) for k, j, positive in pairs(y, y_ref, self_of) if k == i]
        pull = sum(((-beta * (s[i, j] - margin)).exp() for j, same in mine if same), total * 0)
        push = sum(((gamma * (s[i, j] - margin)).exp() for j, same in mine if not same), total * 0)
        total = total + pull.log1p() / beta + push.log1p() / gamma
    return total / len(x)


def rank(s: Tensor, item: int, images: Sequence[int], temperature: float) -> Tensor:
    others = [z for z in images if z != item]
    return 1 + ((s[others] - s[item]) / temperature).sigmoid().sum()


def queries(s, y, y_ref, self_of: Rows, include_self):
    """Yields similarities, images that are ranked, positives, and the image itself or −1."""
    for q in range(len(s)):
        own = -1 if self_of is None else self_of[q]
        images = [z for z in range(len(y_ref)) if include_self or z != own]
        yield s[q], images, [z for z in images if y_ref[z] == y[q]], own


def smooth_ap_reference(x, y, references, y_ref, self_of: Rows, tau, include_self=True) -> Tensor:
    terms = []
    every = queries(similarity(x, references), y, y_ref, self_of, include_self)
    for s, images, positives, _ in every:
        ratios = [rank(s, i, positives, tau) / rank(s, i, images, tau) for i in positives]
        terms += [1 - sum(ratios) / len(ratios)] if ratios else []
    return torch.stack(terms).mean() if terms else 0 * x.sum()


def recall_at_k_reference(x, y, references, y_ref, self_of: Rows, tau, ks, include_self=True):
    s = similarity(x, references)
    return recall_at_k_of(s, y, y_ref, self_of, tau, ks, include_self)


def recall_at_k_of(s, y, y_ref, self_of: Rows, tau, ks, include_self=True):
    terms, zero = [], 0 * s.sum()
    for of_q, images, positives, own in queries(s, y, y_ref, self_of, include_self):
        ranks = [rank(of_q, i, images, tau) for i in positives if i != own]
        for k in [min(k, len(y_ref)) for k in ks] if ranks else []:
            hits = sum((k - one).sigmoid() for one in ranks)
            terms.append(1 - hits.clamp_max(k) / min(k, len(ranks)))
    return torch.stack(terms).mean() if terms else zero
