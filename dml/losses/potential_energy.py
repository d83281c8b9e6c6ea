"""Energy and forces of many charges on the unit sphere, tile by tile.

Shapes: N charges, D dimensions, T and W rows and columns of a tile, K pairs.

Charges are sorted by class and divided into blocks, which on a CPU never split a class. All pairs
within a block are computed. Pairs of different classes can only repel, and only within the
potential's reach, so that tiles are screened first: on a CPU, a quarter of the coordinates gives a
lower bound of r² at a quarter of the cost. Pairs possibly within reach are computed with float64
distances; forces between charges that nearly touch are computed from difference vectors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dml.core.torch_internals import not_compiled
from dml.losses.cosine import EPSILON, unit_rows
from dml.losses.custom_backward import first_order_backward
from dml.losses.distances import FEW, squared_distances
from dml.losses.potential_functions import CLOSE, Potential

SCREEN_ERROR = 0.02  # error of r² from a product that may round its factors to bfloat16 (or TF32)
MANY = 0.5  # share of pairs possibly within reach above which a second screen is not worthwhile
PROBE = 16  # rows screened first, to detect tiles for which screening is not worthwhile

CPU_TILE = (256, 2048)
GPU_TILE = (1024, 4096)

NO_GRAPH = (
    "losses of potentials cannot be exported, since their tiles depend on the values of the "
    "embeddings; export the embedder instead"
)

Tile = tuple[slice, slice]


class _Charges:
    """State of an evaluation: sorted unit charges, and the energy and forces so far."""

    def __init__(self, x_ND: Tensor, labels_N: Tensor, potential: Potential, forces: bool) -> None:
        self.potential = potential
        self.order_N = labels_N.argsort(stable=True)
        self.labels_N = labels_N[self.order_N]
        self.on_gpu = x_ND.is_cuda
        self.rows, self.columns = GPU_TILE if self.on_gpu else CPU_TILE
        self.exact_ND = torch.empty_like(x_ND, dtype=torch.float64)
        self.norm_N1 = self.exact_ND.new_empty(len(x_ND), 1)
        for start in range(0, len(x_ND), self.columns):
            part = slice(start, start + self.columns)
            unit, norm = unit_rows(x_ND[self.order_N[part]].double())
            self.exact_ND[part], self.norm_N1[part] = unit, norm
        self.z_ND = self.exact_ND.to(x_ND.dtype)
        self.sample_ND = self.z_ND[:, ::4].contiguous()
        self.squared_N = self.exact_ND.square().sum(dim=1)  # 1, but 0 for zero vectors

        self.dtype = torch.float64 if potential.steep else x_ND.dtype
        self.energy = self.exact_ND.new_zeros(())
        self.force_ND = torch.zeros_like(x_ND, dtype=self.dtype) if forces else None

    def add_all(self) -> None:
        """Adds the energy and the forces of all pairs."""
        if self.on_gpu:
            self._add_all_on_gpu()
            return
        counts: list[int] = self.labels_N.unique_consecutive(return_counts=True)[1].tolist()
        blocks = self._class_blocks(counts)
        for block in blocks:
            self._add_with_classes((block, block))
        for tile in self._tiles_after(blocks):
            self._add_between(tile)
        size = len(self.labels_N)
        self.energy += self.potential.far * (size**2 - sum(count**2 for count in counts))

    def _class_blocks(self, counts: list[int]) -> list[slice]:
        """Divides the charges into blocks of about `rows` charges at class boundaries."""
        blocks, start, end = [], 0, 0
        for count in counts:
            if end > start and end + count - start > self.rows:
                blocks.append(slice(start, end))
                start = end
            end += count
        return [*blocks, slice(start, end)]

    def _tiles_after(self, blocks: list[slice]) -> list[Tile]:
        """Returns the tiles of each block with the charges after it."""
        size = len(self.labels_N)
        return [
            (block, slice(start, min(start + self.columns, size)))
            for block in blocks
            for start in range(block.stop, size, self.columns)
        ]

    def _add_all_on_gpu(self) -> None:
        """Adds all pairs, waiting for the GPU once; blocks may split classes."""
        size = len(self.labels_N)
        blocks = [slice(i, min(i + self.rows, size)) for i in range(0, size, self.rows)]
        tiles = [*((block, block) for block in blocks), *self._tiles_after(blocks)]
        flags = [[True, True, False]]
        if len(tiles) > 1 or self.potential.steep:
            flags = torch.stack([self._screen(tile) for tile in tiles]).tolist()
        for tile, (near, of_class, touching) in zip(tiles, flags, strict=True):
            if of_class:
                self._add_with_classes(tile, touching)
            elif near:
                self._add_tile(tile, touching)
        up_to_N = torch.searchsorted(self.labels_N, self.labels_N, right=True)
        count_N = up_to_N - torch.searchsorted(self.labels_N, self.labels_N)
        self.energy += self.potential.far * (size**2 - count_N.sum().double())

    def _screen(self, tile: Tile) -> Tensor:
        """Returns whether some pair may be within reach, is of one class, or nearly touches."""
        rows, columns = tile
        near = self._may_reach(tile, self.z_ND).any()
        touching = torch.zeros_like(near)
        if self.potential.steep:
            touching_TW = self._squared_distances(tile, False) < CLOSE**2
            touching = (touching_TW.fill_diagonal_(False) if rows == columns else touching_TW).any()
        # the labels are sorted: if any pair is of one class, the pair next to the diagonal is
        corner = max(columns.start, rows.stop - 1)
        of_class = self.labels_N[rows.stop - 1] == self.labels_N[corner]
        return torch.stack([near, of_class, touching])

    def _add_with_classes(self, tile: Tile, touching: bool | None = None) -> None:
        """Adds the pairs of a tile that may be of the same class."""
        rows, columns = tile
        r2_TW = self._squared_distances(tile, touching)
        same_TW = self.labels_N[rows, None] == self.labels_N[columns]
        forms = zip(self.potential.attraction(r2_TW), self.potential.repulsion(r2_TW), strict=True)
        value_TW, slope_TW = (torch.where(same_TW, pull_TW, push_TW) for pull_TW, push_TW in forms)
        if rows == columns:
            value_TW, slope_TW = value_TW.fill_diagonal_(0), slope_TW.fill_diagonal_(0)
        self._add_pairs(tile, value_TW, slope_TW)

    def _add_between(self, tile: Tile) -> None:
        """Adds the pairs of a tile of different classes in the cheapest way."""
        rows, columns = tile
        probe = slice(rows.start, min(rows.start + PROBE, rows.stop))
        if _share_true(self._may_reach((probe, columns), self.sample_ND)) > MANY:
            self._add_tile(tile)
            return
        near_TW = self._may_reach(tile, self.sample_ND)
        if FEW < _share_true(near_TW) < MANY:
            near_TW = self._may_reach(tile, self.z_ND)
        if _share_true(near_TW) > FEW:
            self._add_tile(tile)
        elif near_TW.any():
            self._add_single_pairs(tile, near_TW.nonzero())

    def _may_reach(self, tile: Tile, z_NE: Tensor) -> Tensor:
        """Returns a mask that includes all pairs within reach, from some coordinates z (T×W)."""
        rows, columns = tile
        z_TE, z_WE = z_NE[rows], z_NE[columns]
        half_squared_T1 = z_TE.square().sum(dim=1, keepdim=True) / 2
        closeness_TW = torch.addmm(z_WE.square().sum(dim=1), z_TE, z_WE.T, beta=-0.5)
        return closeness_TW > half_squared_T1 - (self.potential.reach**2 + SCREEN_ERROR) / 2

    def _add_tile(self, tile: Tile, touching: bool | None = None) -> None:
        """Adds all pairs of a tile of different classes."""
        self._add_pairs(tile, *self.potential.repulsion(self._squared_distances(tile, touching)))

    def _add_pairs(self, tile: Tile, value_TW: Tensor, slope_TW: Tensor) -> None:
        """Adds the values and the forces of all pairs of a tile."""
        rows, columns = tile
        orders = 1 if rows == columns else 2
        self.energy += orders * value_TW.sum(dtype=torch.float64)
        if self.force_ND is not None:
            self._add_forces(rows, columns, slope_TW)
            if orders == 2:
                self._add_forces(columns, rows, slope_TW.T)

    def _add_single_pairs(self, tile: Tile, pairs_K2: Tensor) -> None:
        """Adds some pairs of a tile of different classes, computed from difference vectors."""
        rows, columns = tile
        for part_K2 in pairs_K2.split(self.columns):
            i_K, j_K = part_K2[:, 0] + rows.start, part_K2[:, 1] + columns.start
            apart_KD = self.exact_ND[i_K] - self.exact_ND[j_K]
            r2_K = apart_KD.square().sum(dim=1)
            value_K, slope_K = self.potential.repulsion(r2_K)
            self.energy += 2 * value_K.sum()
            if self.force_ND is not None:
                force_KD = apart_KD.mul_(4 * slope_K[:, None]).to(self.dtype)
                self.force_ND.index_add_(0, i_K, force_KD)
                self.force_ND.index_add_(0, j_K, force_KD, alpha=-1)

    def _squared_distances(self, tile: Tile, touching: bool | None = None) -> Tensor:
        """Returns r², accurate where forces act; if `touching` is None, this waits for a GPU."""
        rows, columns = tile
        z_TD = self.exact_ND[rows]
        z_WD = z_TD if rows == columns else self.exact_ND[columns]
        if touching:
            apart_TW = torch.cdist(z_TD, z_WD, compute_mode="donot_use_mm_for_euclid_dist")
            return apart_TW.square_().to(self.dtype)
        small = CLOSE if self.potential.steep and touching is None else 0.0
        squared_T, squared_W = self.squared_N[rows], self.squared_N[columns]
        return squared_distances(z_TD, z_WD, squared_T, squared_W, small).to(self.dtype)

    def _add_forces(self, rows: slice, columns: slice, slope_TW: Tensor) -> None:
        """Adds ∂/∂z_a of Σ ψ(r²_ab) over ordered pairs: 4 Σ_b ψ'(r²_ab) (z_a − z_b)."""
        assert self.force_ND is not None
        z_ND = self.exact_ND if self.dtype == torch.float64 else self.z_ND
        force_TD = z_ND[rows] * slope_TW.sum(dim=1, keepdim=True)
        self.force_ND[rows] += force_TD.addmm_(slope_TW, z_ND[columns], alpha=-1).mul_(4)

    def gradient(self) -> Tensor:
        """Returns the gradient for the charges in their original order and length."""
        assert self.force_ND is not None
        force_ND, z_ND = self.force_ND, self.exact_ND.to(self.dtype)
        stretch_N1 = (force_ND * z_ND).sum(dim=1, keepdim=True)
        stretch_N1 = torch.where(self.norm_N1 > EPSILON, stretch_N1, 0)
        force_ND.addcmul_(z_ND, stretch_N1, value=-1).div_(self.norm_N1.to(self.dtype))
        return torch.empty_like(self.z_ND).index_copy_(
            0, self.order_N, force_ND.to(self.z_ND.dtype)
        )


def _share_true(mask: Tensor) -> float:
    return int(mask.count_nonzero()) / mask.numel()


class _MeanEnergy(torch.autograd.Function):
    """Computes value and gradient together, so that each distance is computed once."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, labels_N: Tensor, potential: Potential, with_gradient: bool
    ) -> Tensor:
        charges = _Charges(x_ND, labels_N, potential, with_gradient)
        charges.add_all()
        if with_gradient:
            ctx.save_for_backward(charges.gradient().div_(len(x_ND)))
        return (charges.energy / len(x_ND)).to(x_ND.dtype)

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient_ND,) = ctx.saved_tensors
        return gradient_ND * g, None, None, None


@not_compiled
def mean_energy(x_ND: Tensor, labels_N: Tensor, potential: Potential) -> Tensor:
    """Returns (1/N) Σ_{a≠b} ψ(‖x̂_a − x̂_b‖) over ordered pairs, a scalar.

    Pairs of one class attract, others repel. In addition to the charges, memory is needed for a few
    tiles, never for N×N.

    Args:
        x_ND: charges of any length, float32 or float64.
        labels_N: integer classes of the charges.
        potential: attraction and repulsion.

    Raises:
        RuntimeError: inside `torch.export`.
    """
    if torch.compiler.is_exporting():
        raise RuntimeError(NO_GRAPH)
    with_gradient = torch.is_grad_enabled() and x_ND.requires_grad
    energy: Tensor = _MeanEnergy.apply(x_ND, labels_N, potential, with_gradient)
    return energy
