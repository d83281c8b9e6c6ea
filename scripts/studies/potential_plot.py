"""Plot of the potential around a few charges of two classes in the plane (pfml, Figure 2)."""

from __future__ import annotations

from pathlib import Path

import torch

from dml.losses.potential_functions import DecayingPotential
from dml.runs.figures.drawing import BLUE, ORANGE, plt, save

POINTS = 240  # per axis
EXTENT = 1.0  # half the width of the picture


def toy_charges(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns positions N×2 and labels N of two classes that overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.tensor([[-0.4, -0.15], [0.35, 0.2]])
    labels = torch.arange(2).repeat_interleave(7)
    return centers[labels] + 0.2 * torch.randn(len(labels), 2, generator=generator), labels


def potential_at(
    points_GD: torch.Tensor,
    charges_ND: torch.Tensor,
    labels_N: torch.Tensor,
    label: int,
    potential: DecayingPotential,
) -> torch.Tensor:
    """Returns the mean potential of a charge of class `label` at points G×D: G values."""
    squared_GN = torch.cdist(points_GD, charges_ND).square()
    attraction, repulsion = potential.attraction(squared_GN)[0], potential.repulsion(squared_GN)[0]
    return torch.where(labels_N == label, attraction, repulsion).mean(dim=1)


def draw_field(path: Path, *, alpha: float = 4.0, delta: float = 0.2, seed: int = 0) -> None:
    """Draws the potential field acting on each of two classes, one panel per class.

    Args:
        path: PNG to write.
        alpha, delta: of the potential.
        seed: of the charges.
    """
    charges, labels = toy_charges(seed)
    axis = torch.linspace(-EXTENT, EXTENT, POINTS, dtype=torch.float64)
    grid_G2 = torch.cartesian_prod(axis, axis)
    potential = DecayingPotential(alpha, delta, delta, min_distance=0.01)
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.3), layout="constrained")
    for label, panel in enumerate(panels):
        values = potential_at(grid_G2, charges.double(), labels, label, potential)
        field = values.view(POINTS, POINTS).T.numpy()
        limit = -float(field.min())  # of the attraction; repulsion goes far beyond it
        picture = panel.imshow(
            field,
            origin="lower",
            extent=(-EXTENT, EXTENT, -EXTENT, EXTENT),
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        for other, (color, marker) in enumerate(((BLUE, "o"), (ORANGE, "s"))):
            panel.scatter(
                *charges[labels == other].T, c=color, marker=marker, s=36, edgecolors="black"
            )
        panel.set_title(f"acting on class {label + 1}", fontsize=10)
        panel.set_xticks([])
        panel.set_yticks([])
        figure.colorbar(picture, ax=panel, shrink=0.85)
    figure.suptitle(
        rf"Potential field of two classes: $\alpha$ = {alpha:g}, $\delta$ = {delta:g}", fontsize=11
    )
    save(figure, path)
