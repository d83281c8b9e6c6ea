"""Plot of the potential around samples and proxies of two classes in the plane (pfml, Figure 2)."""

from __future__ import annotations

from pathlib import Path

import torch

from dml.losses.potential_functions import DecayingPotential
from dml.runs.figures.drawing import BLUE, ORANGE, plt, save

POINTS = 240  # per axis
EXTENT = 1.0  # half the width of the picture
ARROWS = 8  # every so many points
SAMPLES, PROXIES = 7, 2  # of each class


def toy_charges(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns positions N×2 and labels N of two classes that overlap a little.

    The last `PROXIES` charges of each class are its proxies.
    """
    generator = torch.Generator().manual_seed(seed)
    centers = torch.tensor([[-0.4, -0.15], [0.35, 0.2]])
    labels = torch.arange(2).repeat_interleave(SAMPLES + PROXIES)
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

    Arrows show the direction of the force, the negative gradient of the potential, where there is
    one.

    Args:
        path: PNG to write.
        alpha, delta: of the potential.
        seed: of the charges.
    """
    charges, labels = toy_charges(seed)
    axis = torch.linspace(-EXTENT, EXTENT, POINTS, dtype=torch.float64)
    grid_G2 = torch.cartesian_prod(axis, axis).requires_grad_()
    coarse = slice(ARROWS // 2, None, ARROWS)
    potential = DecayingPotential(alpha, delta, delta, min_distance=0.01)
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
    for label, panel in enumerate(panels):
        values = potential_at(grid_G2, charges.double(), labels, label, potential)
        force_GG2 = -torch.autograd.grad(values.sum(), grid_G2)[0].view(POINTS, POINTS, 2)
        force_AA2 = force_GG2[coarse, coarse].transpose(0, 1)
        direction_AA2 = force_AA2 / force_AA2.norm(dim=2, keepdim=True)  # NaN without a force
        field = values.detach().view(POINTS, POINTS).T.numpy()
        limit = -float(field.min())  # of the attraction; repulsion goes far beyond it
        picture = panel.imshow(
            field,
            origin="lower",
            extent=(-EXTENT, EXTENT, -EXTENT, EXTENT),
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        panel.quiver(axis[coarse], axis[coarse], *direction_AA2.unbind(2), scale=40, alpha=0.5)
        for other, color in enumerate((BLUE, ORANGE)):
            samples, proxies = charges[labels == other].split([SAMPLES, PROXIES])
            for points, marker, size, name in (
                (samples, "os"[other], 36, "samples"),
                (proxies, "*", 160, "proxies"),
            ):
                style = {"c": color, "marker": marker, "s": size, "edgecolors": "black"}
                panel.scatter(*points.T, label=f"class {other + 1}, {name}", **style)
        panel.set_title(f"acting on class {label + 1}", fontsize=10)
        panel.set_xticks([])
        panel.set_yticks([])
    figure.colorbar(picture, ax=panels, shrink=0.85, label="potential")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(
        rf"Potential field of two classes: $\alpha$ = {alpha:g}, $\delta$ = {delta:g}", fontsize=11
    )
    save(figure, path)
