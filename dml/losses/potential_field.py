"""Potential field losses: images and proxies are charges (pfml).

Shapes: B images in a batch, D embedding dimensions, C classes, k proxies per class.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dml.losses.arguments import check_integer, check_non_negative, check_one_of, check_positive
from dml.losses.metric_loss import ClassificationLoss
from dml.losses.potential_energy import mean_energy
from dml.losses.potential_functions import DecayingPotential, GrowingPotential, Potential


class FieldLoss(ClassificationLoss):
    """Base class: energy of the embeddings of a batch and all proxies (pfml, Eq. 6).

    Charges (images and proxies) of the same class attract, others repel.

    Attributes:
        proxies: C·k×D, initialized in random directions, normalized in the loss; rows
            c·k…c·k+k−1 belong to class c. Not a parameter if k = 0: only images are charges.
        unit: unit of energy of `potential`: δ^−α, or 1.
    """

    potential: Potential
    unit = 1.0

    def __init__(
        self, num_classes: int, embedding_size: int, proxies_per_class: int, scale: str
    ) -> None:
        super().__init__(num_classes, embedding_size)
        self.scale = check_one_of("scale", scale, ("energy", "normalized"))
        self.proxies_per_class = check_integer("proxies_per_class", proxies_per_class, at_least=0)
        proxies = torch.randn(num_classes * self.proxies_per_class, embedding_size)
        if self.proxies_per_class > 0:
            self.proxies = nn.Parameter(nn.functional.normalize(proxies))
        else:
            self.register_buffer("proxies", proxies, persistent=False)

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        classes = torch.arange(self.num_classes, device=x_BD.device)
        labels_N = torch.cat([labels_B, classes.repeat_interleave(self.proxies_per_class)])
        dtype = torch.promote_types(x_BD.dtype, self.proxies.dtype)
        x_ND = torch.cat([x_BD.to(dtype), self.proxies.to(dtype)])
        return mean_energy(x_ND, labels_N, self.potential) * self.energy_scale(len(x_BD))

    def energy_scale(self, images: int) -> float:
        """Returns the loss of a batch over δ^α·U / N, with its number N of charges."""
        charges = images + len(self.proxies)
        return charges * self.unit if self.scale == "energy" else 1.0

    def log_unit(self, images: int) -> float:
        """Returns the unit of the logged loss of a batch, so that δ^α·U / N is logged.

        U varies by orders of magnitude with α, δ and N.
        """
        return self.energy_scale(images)


class PotentialFieldLoss(FieldLoss):
    """PFML: forces that decay with distance (pfml).

    The energy U of all ordered pairs: attraction −max(r, δ)^−α, without force inside δ, and
    repulsion min(r, δ_rep)^−α, without force outside δ_rep; r is the Euclidean distance of unit
    vectors. α = 0 is the logarithmic potential: log(max(r, δ)/δ) and −log(min(r, δ_rep)/δ).
    Forces reach 2α·N·min_distance^−(α+1) per charge, whose squares may exceed float32.

    Args:
        num_classes: C.
        embedding_size: D.
        proxies_per_class: k ≥ 0; 15 for CUB and Cars, 2 for SOP.
        alpha: α ≥ 0, decay of the forces.
        delta: δ > 0.
        delta_repulsion: δ_rep > 0 (Figure 3d), None for δ.
        min_distance: minimum of r; smaller distances have no force; above 0.
        scale: `energy`: U; `normalized`: δ^α·U over the number of charges, for clipped gradients.
            With weight decay in the gradient (Adam, RMSprop), decay outweighs the forces on
            proxies in the normalized form.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = PotentialFieldLoss(num_classes=3, embedding_size=8, proxies_per_class=2)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        proxies_per_class: int,
        alpha: float = 4.0,
        delta: float = 0.2,
        delta_repulsion: float | None = None,
        min_distance: float = 0.01,
        scale: str = "energy",
    ) -> None:
        super().__init__(num_classes, embedding_size, proxies_per_class, scale)
        self.alpha = check_non_negative("alpha", alpha)
        self.delta = check_positive("delta", delta)
        self.delta_repulsion = (
            self.delta
            if delta_repulsion is None
            else check_positive("delta_repulsion", delta_repulsion)
        )
        self.min_distance = check_positive("min_distance", min_distance)
        self.unit = self.delta**-self.alpha
        self.potential = DecayingPotential(
            self.alpha, self.delta, self.delta_repulsion, self.min_distance
        )


class ContrastivePotentialLoss(FieldLoss):
    """CPML: forces that grow with distance, for comparison with PFML (pfml).

    The sum over all ordered pairs of attraction max(r, δ)² and repulsion [δ − r]_+²; r is the
    Euclidean distance of unit vectors.

    Args:
        num_classes: C.
        embedding_size: D.
        proxies_per_class: k ≥ 0.
        delta: δ > 0.
        repulsion: `hinge`: [δ − r]_+²; `square`: −min(r, δ)². The paper does not print the form.
        scale: `energy`: the sum; `normalized`: the sum over the number of charges.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = ContrastivePotentialLoss(num_classes=3, embedding_size=8, proxies_per_class=2)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        proxies_per_class: int,
        delta: float = 0.2,
        repulsion: str = "hinge",
        scale: str = "energy",
    ) -> None:
        super().__init__(num_classes, embedding_size, proxies_per_class, scale)
        self.delta = check_positive("delta", delta)
        self.repulsion = check_one_of("repulsion", repulsion, ("hinge", "square"))
        self.potential = GrowingPotential(self.delta, self.repulsion)
