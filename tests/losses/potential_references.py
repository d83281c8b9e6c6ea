"""Energies of charges written from their equations, by difference vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def distances(x: Tensor) -> Tensor:
    z = F.normalize(x, dim=1)
    squared = (z[:, None] - z).square().sum(dim=2)
    positive = squared > 0
    return torch.where(positive, squared, 1.0).sqrt() * positive


def sum_of_pairs(attraction: Tensor, repulsion: Tensor, labels: Tensor) -> Tensor:
    pairs = torch.where(labels[:, None] == labels, attraction, repulsion)
    return pairs.masked_fill(torch.eye(len(labels), dtype=torch.bool), 0).sum()


def pfml_energy(
    x: Tensor, labels: Tensor, alpha: float, delta: float, delta_rep: float, min_distance: float
) -> Tensor:
    """U of Equations 1 to 6; the logarithmic potential at α = 0."""
    r = distances(x).clamp_min(min_distance)
    if alpha == 0:
        attraction = (r.clamp_min(delta) / delta).log()
        repulsion = -(r.clamp_max(delta_rep) / delta).log()
    else:
        attraction = -(r.clamp_min(delta) ** -alpha)
        repulsion = r.clamp_max(delta_rep) ** -alpha
    return sum_of_pairs(attraction, repulsion, labels)


def cpml_energy(x: Tensor, labels: Tensor, delta: float, form: str) -> Tensor:
    r = distances(x)
    hinge = (delta - r).clamp_min(0) ** 2
    repulsion = hinge if form == "hinge" else -(r.clamp_max(delta) ** 2)
    return sum_of_pairs(r.clamp_min(delta) ** 2, repulsion, labels)
