"""Potentials between two charges, as functions of their squared distance.

Every function takes squared distances r² and returns the potential and its derivative with respect
to r², elementwise. The repulsion is reduced by its value far away, so that it is 0 for pairs
out of reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

CLOSE = 0.005  # forces at smaller distances need more precision than 2 − 2s or float32


class Potential(Protocol):
    """An attraction within classes and a repulsion between them."""

    @property
    def reach(self) -> float:
        """The distance beyond which the repulsion is constant."""

    @property
    def far(self) -> float:
        """The constant value of the repulsion beyond `reach`."""

    @property
    def steep(self) -> bool:
        """Whether forces act on charges closer than `CLOSE`."""

    def attraction(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_att and dψ_att/dr²."""

    def repulsion(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_rep − far and dψ_rep/dr²."""


@dataclass(frozen=True)
class DecayingPotential:
    """PFML: attraction −min(1, (δ/r)^α), repulsion (δ / min(r, δ_rep))^α.

    At α = 0: log(max(r, δ)/δ) and −log(min(r, δ_rep)/δ). The minimum of r is `min_distance`, below
    which there is no force.
    """

    alpha: float
    delta: float
    delta_repulsion: float
    min_distance: float

    @property
    def reach(self) -> float:
        """The distance beyond which the repulsion is constant."""
        return self.delta_repulsion

    @property
    def far(self) -> float:
        """The constant value of the repulsion beyond `reach`."""
        ratio = self.delta / max(self.delta_repulsion, self.min_distance)
        return ratio**self.alpha if self.alpha > 0 else math.log(ratio)

    @property
    def steep(self) -> bool:
        """Whether `min_distance` is below `CLOSE`: float32 has an error of 6e-8 / r in r."""
        return self.min_distance < CLOSE

    def attraction(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_att and dψ_att/dr²; constant inside δ."""
        edge2 = max(self.delta, self.min_distance) ** 2
        value, slope = self._decay(r2.clamp_min(edge2))
        return value.neg_(), torch.where(r2 > edge2, slope.neg_(), 0)

    def repulsion(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_rep − far and dψ_rep/dr²; constant outside δ_rep."""
        low, high = self.min_distance, max(self.reach, self.min_distance)
        c = r2.clamp(low**2, high**2)
        value, slope = self._decay(c)
        return value.sub_(self.far), torch.where(c == r2, slope, 0)

    def _decay(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (δ²/c)^(α/2), or log(δ²/c)/2 at α = 0, and the derivative."""
        ratio = self.delta**2 / c
        if self.alpha == 0:
            return ratio.log_().mul_(0.5), (-0.5) / c
        value = ratio.pow_(self.alpha / 2)
        return value, (value / c).mul_(-self.alpha / 2)


@dataclass(frozen=True)
class GrowingPotential:
    """CPML: attraction max(r, δ)², repulsion [δ − r]_+² (`hinge`) or −min(r, δ)² (`square`)."""

    delta: float
    form: str

    # rounding error of the distance of equal unit vectors, up to which there is no force
    NO_DIRECTION = 1e-12

    @property
    def reach(self) -> float:
        """The distance beyond which the repulsion is constant."""
        return self.delta

    @property
    def far(self) -> float:
        """The constant value of the repulsion beyond `reach`."""
        return 0.0 if self.form == "hinge" else -(self.delta**2)

    @property
    def steep(self) -> bool:
        """Whether the form is the hinge, whose force is 2δ at r = 0."""
        return self.form == "hinge"

    def attraction(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_att and dψ_att/dr²; constant inside δ."""
        return r2.clamp_min(self.delta**2), (r2 > self.delta**2).to(r2.dtype)

    def repulsion(self, r2: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ψ_rep − far and dψ_rep/dr²; constant outside δ."""
        if self.form == "square":
            return (self.delta**2 - r2).relu_(), -(r2 < self.delta**2).to(r2.dtype)
        r = r2.clamp_min(0).sqrt_()
        depth = (self.delta - r).relu_()
        slope = torch.where(r > self.NO_DIRECTION, -depth / r, 0)
        return depth.square(), slope
