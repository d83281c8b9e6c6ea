"""Metrix as loops over anchors and pairs, written from the equations; slow and simple."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Members = list[tuple[Tensor, float]]  # similarity to the anchor, label


def total(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum()


def contrastive(margin: float, positive_margin: float = 0.0) -> Callable[[Members], Tensor]:
    def loss(members: Members) -> Tensor:
        def mean(terms: list[Tensor]) -> Tensor:
            some = [t for t in terms if t > 0]
            return total(some) / len(some) if some else torch.zeros((), dtype=torch.float64)

        r = [((2 - 2 * s).sqrt(), y) for s, y in members]
        pull = mean([y * (d - positive_margin).relu() for d, y in r])
        return pull + mean([(1 - y) * (margin - d).relu() for d, y in r])

    return loss


def contrastive_over_terms(margin: float, positive_margin: float = 0.0) -> Callable:
    """The mean over the non-zero terms of all anchors."""

    def loss(members: Members) -> Tensor:
        return contrastive(margin, positive_margin)(members)

    loss.over_all_anchors = True
    return loss


def contrastive_cosine(margin: float) -> Callable[[Members], Tensor]:
    def loss(members: Members) -> Tensor:
        return total([-y * s + (1 - y) * (s - margin).relu() for s, y in members])

    return loss


def lifted(margin: float) -> Callable[[Members], Tensor]:
    def loss(members: Members) -> Tensor:
        pos = [y * (-s).exp() for s, y in members if y > 0]
        neg = [(1 - y) * (s - margin).exp() for s, y in members if y < 1]
        zero = torch.zeros((), dtype=torch.float64)
        return ((total(pos).log() if pos else zero) + (total(neg).log() if neg else zero)).relu()

    return loss


def deviance(beta: float, gamma: float, margin: float, divided: bool) -> Callable:
    def loss(members: Members) -> Tensor:
        pos = total([y * (-beta * (s - margin)).exp() for s, y in members])
        neg = total([(1 - y) * (gamma * (s - margin)).exp() for s, y in members])
        b, g = (beta, gamma) if divided else (1, 1)
        return pos.log1p() / b + neg.log1p() / g

    return loss


def proxy_anchor(alpha: float, margin: float) -> Callable[[Members], Tensor]:
    def loss(members: Members) -> Tensor:
        pos = total([y * (-alpha * (s - margin)).exp() for s, y in members])
        neg = total([(1 - y) * (alpha * (s + margin)).exp() for s, y in members])
        return pos.log1p() + neg.log1p()

    return loss


def nca(scale: float, positives_below: bool = False) -> Callable[[Members], Tensor | None]:
    def loss(members: Members) -> Tensor | None:
        if not any(y > 0 for _, y in members):
            return None  # not part of the mean
        pos = total([y * (scale * s).exp() for s, y in members])
        below = [(1 if positives_below else 1 - y) * (scale * s).exp() for s, y in members]
        return total(below).log() - pos.log() if any(t > 0 for t in below) else -pos.log()

    return loss


def mean(losses: list[Tensor | None]) -> Tensor:
    counted = [loss for loss in losses if loss is not None]
    return total(counted) / len(counted) if counted else torch.zeros((), dtype=torch.float64)


def embed_mix(embedder: nn.Module, kind: str, given: Tensor, i: int, j: int, lam: float) -> Tensor:
    """One mixed embedding of length 1, made in the most direct way."""
    if kind == "embed":
        u = F.normalize(given, dim=1)
        return F.normalize(lam * u[i] + (1 - lam) * u[j], dim=0)
    mixed = (lam * given[i] + (1 - lam) * given[j])[None]
    v = embedder(mixed) if kind == "input" else embedder.embed(mixed)
    return F.normalize(v[0], dim=0)


def sets(pairs: str, own: object, positives: list, negatives: list) -> list[tuple]:
    """M(a) of one anchor, with the labels of both members."""
    plus, minus = [(p, 1) for p in positives], [(n, 0) for n in negatives]
    first = {"pos_neg": plus, "anc_neg": [(own, 1)], "pos_pos": plus, "neg_neg": minus}[pairs]
    return [(x, z) for x in first for z in (plus if pairs == "pos_pos" else minus)]


def hardest(candidates: list[int], s: Tensor, k: int | None) -> list[int]:
    return sorted(candidates, key=lambda n: -s[n].item())[:k]


def mixed_loss_of_samples(
    form, embedder, kind, pairs, given, x, labels, lam, k=None, lone_only=False
) -> Tensor:
    """Mean of ℓ̃ over samples as anchors; `lam` gives the factor of a pair."""
    u = F.normalize(x, dim=1)
    losses, everything = [], []
    for a in range(len(x)):
        positives = [i for i in range(len(x)) if labels[i] == labels[a] and i != a]
        negatives = hardest([i for i in range(len(x)) if labels[i] != labels[a]], u @ u[a], k)
        if lone_only and pairs == "anc_neg" and positives:
            negatives = []
        members = []
        for (i, y), (j, z) in sets(pairs, a, positives, negatives):
            v = embed_mix(embedder, kind, given, i, j, lam(i, j))
            members.append((u[a] @ v, lam(i, j) * y + (1 - lam(i, j)) * z))
        everything += members
        nothing = None if form.__qualname__.startswith("nca") else torch.zeros((), dtype=x.dtype)
        losses.append(form(members) if members else nothing)
    return form(everything) if hasattr(form, "over_all_anchors") else mean(losses)


def mixed_loss_of_proxy_anchors(
    form, embedder, kind, pairs, given, x, labels, proxies, lam, k=None
) -> Tensor:
    """Anchors: the proxies of the classes in the batch; in `lam`, they follow the samples."""
    u, p = F.normalize(x, dim=1), F.normalize(proxies, dim=1)
    losses = []
    for number, c in enumerate(sorted(set(labels.tolist()))):
        positives = [i for i in range(len(x)) if labels[i] == c]
        negatives = hardest([i for i in range(len(x)) if labels[i] != c], u @ p[c], k)
        members = []
        for (i, y), (j, z) in sets(pairs, len(x) + number, positives, negatives):
            factor = lam(i, j)
            if i >= len(x):
                v = F.normalize(factor * p[c] + (1 - factor) * u[j], dim=0)
            else:
                v = embed_mix(embedder, kind, given, i, j, factor)
            members.append((p[c] @ v, factor * y + (1 - factor) * z))
        losses.append(form(members) if members else torch.zeros((), dtype=x.dtype))
    return mean(losses)


def mixed_loss_of_proxy_others(
    form, embedder, kind, pairs, given, x, labels, proxies, lam, k=None
) -> Tensor:
    """Anchors: mixes of two samples, of the same class for pos_pos, else of different ones."""
    u, p = F.normalize(x, dim=1), F.normalize(proxies, dim=1)
    losses = []
    for i in range(len(x)):
        if pairs == "pos_pos":
            partners = [j for j in range(len(x)) if labels[j] == labels[i] and j != i]
        else:
            partners = hardest([j for j in range(len(x)) if labels[j] != labels[i]], u @ u[i], k)
        for j in partners:
            v = embed_mix(embedder, kind, given, i, j, lam(i, j))
            y = [0.0] * len(p)
            y[labels[i]] += lam(i, j)
            y[labels[j]] += 1 - lam(i, j)
            losses.append(form([(v @ p[c], y[c]) for c in range(len(p))]))
    return mean(losses)
