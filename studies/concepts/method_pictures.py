"""Pictures of the concepts of the methods: mean fields, charges, mixup, chance constraints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dml.losses.potential_functions import DecayingPotential
from dml.retrieval.coverage import greedy_k_center
from dml.runs.figures.drawing import BLUE, COLORS, GREEN, GREY, ORANGE, RED, plt, tidy
from studies.pictures import save_small
from studies.potential_plot import EXTENT, potential_at, toy_charges


def draw_mean_fields(path: Path) -> None:
    """Draws the interactions of one image: with all images of a batch, and with mean fields."""
    rng = np.random.default_rng(3)
    centers = np.array([0.5, 2.4, 4.6])
    angles = centers[:, None] + rng.normal(0, 0.2, (3, 8))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    fields = np.stack([np.cos(centers), np.sin(centers)], axis=-1)
    image = points[0, 1]
    figure, panels = plt.subplots(1, 2, figsize=(6, 3.1), layout="constrained")
    for panel, ends in zip(panels, (points, fields[:, None]), strict=True):
        panel.add_patch(plt.Circle((0, 0), 1, fill=False, color=GREY, lw=0.8))
        for color, group, targets in zip(COLORS, points, ends, strict=False):
            panel.scatter(*group.T, s=22, color=color, zorder=3)
            for x, y in targets:
                panel.plot([image[0], x], [image[1], y], color=color, lw=0.8)
        panel.scatter(*image, s=70, facecolors="none", edgecolors="black", zorder=4)
        panel.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        panel.axis("off")
    for color, field in zip(COLORS, fields, strict=False):
        panels[1].scatter(*field, s=190, marker="*", color=color, edgecolors="black", zorder=5)
    panels[0].set_title("pairs: every image of the batch", fontsize=10)
    panels[1].set_title("mean fields: one star per class", fontsize=10)
    save_small(figure, path)


def draw_charges(path: Path) -> None:
    """Draws the two potentials against distance, and the field of a toy set on one class."""
    delta, alpha = 0.2, 4.0
    potential = DecayingPotential(alpha, delta, delta, min_distance=0.01)
    r = torch.linspace(0.15, 0.6, 300, dtype=torch.float64)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")
    left.plot(r, potential.attraction(r.square())[0], color=BLUE, label="same class: attraction")
    left.plot(r, potential.repulsion(r.square())[0], color=RED, label="other class: repulsion")
    left.axvline(delta, color=GREY, ls="--", lw=1)
    left.text(delta + 0.008, 1.0, r"$\delta$", color=GREY)
    left.set(xlabel="distance r of two charges", ylabel=r"potential, times $\delta^\alpha$")
    left.legend(frameon=False, fontsize=9)
    tidy(left)
    charges, labels = toy_charges()
    axis = torch.linspace(-EXTENT, EXTENT, 160, dtype=torch.float64)
    field = potential_at(torch.cartesian_prod(axis, axis), charges.double(), labels, 0, potential)
    square, limit = (-EXTENT, EXTENT, -EXTENT, EXTENT), -float(field.min())
    right.imshow(
        field.view(160, 160).T,
        origin="lower",
        extent=square,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
    )
    for label, marker in enumerate("os"):
        right.scatter(*charges[labels == label].T, c=COLORS[label], marker=marker, s=26, ec="black")
    right.set_title("field on the class of circles", fontsize=10)
    right.set(xticks=[], yticks=[])
    save_small(figure, path, colors=128)


def draw_mixup(path: Path) -> None:
    """Draws mixes of a positive and a negative on the unit circle, and the density of λ."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.0), layout="constrained")
    positive, negative = (np.array([np.cos(a), np.sin(a)]) for a in (1.15, 0.05))
    arc = np.linspace(0, np.pi / 2, 100)
    left.plot(np.cos(arc), np.sin(arc), color=GREY, lw=0.8)
    left.plot(*np.stack([positive, negative]).T, color=GREY, lw=0.8, ls=":")
    for weight in (0.2, 0.4, 0.6, 0.8):
        mixed = weight * positive + (1 - weight) * negative
        mixed /= np.linalg.norm(mixed)
        left.scatter(
            *mixed, color=plt.get_cmap("RdYlGn")(weight), s=60, edgecolors="black", zorder=3
        )
        left.annotate(
            f"λ = {weight:g}", mixed, xytext=(8, 2), textcoords="offset points", fontsize=9
        )
    named = ((positive, "positive, label 1", GREEN), (negative, "negative, label 0", RED))
    for point, word, color in (*named, (np.array([np.cos(1.5), np.sin(1.5)]), "anchor", "black")):
        left.scatter(*point, color=color, s=70, zorder=3)
        left.annotate(
            word, point, xytext=(-8, -6), textcoords="offset points", ha="right", fontsize=9
        )
    left.set(xlim=(-0.3, 1.35), ylim=(-0.12, 1.1), aspect="equal")
    left.axis("off")
    share = np.linspace(0, 1, 200)
    right.plot(share, 6 * share * (1 - share), color=BLUE)
    right.set(xlabel="λ, the label of the mix", ylabel="density of Beta(2, 2)", ylim=(0, 1.7))
    tidy(right)
    save_small(figure, path)


def draw_chance_constraints(path: Path) -> None:
    """Draws proxies that greedy k-center picks in one class, and the radius that they cover."""
    generator = torch.Generator().manual_seed(4)
    cloud = torch.randn(60, 2, generator=generator) * torch.tensor([1.0, 0.55])
    figure, panels = plt.subplots(1, 3, figsize=(7.5, 2.5), layout="constrained")
    for panel, k in zip(panels, (1, 3, 8), strict=True):
        picks, radii = greedy_k_center(cloud, k)
        panel.scatter(*cloud.T, s=10, color=GREY)
        for x, y in cloud[picks].tolist():
            panel.add_patch(plt.Circle((x, y), float(radii[-1]), color=BLUE, alpha=0.1, lw=0))
        panel.scatter(*cloud[picks].T, s=42, marker="s", color=ORANGE, edgecolors="black", zorder=3)
        many = "proxy" if k == 1 else "proxies"
        panel.set_title(f"{k} {many}: radius {float(radii[-1]):.2f}", fontsize=10)
        panel.set(xlim=(-3.2, 3.2), ylim=(-2.6, 2.6), aspect="equal", xticks=[], yticks=[])
    save_small(figure, path)
