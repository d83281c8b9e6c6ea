"""The gallery, centered, scaled and extended, so that one float32 product gives all scores.

Shapes: n queries, N gallery items, N' items with padding, D dimensions, E = D + 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dml.retrieval.exact.order import CHUNK_BYTES, FLOAT32_UNIT, find_scale, score_error

SAMPLE = 1024  # items whose mean is the center
PADDING_SCORE = -16.0  # below all true scores, which are at least −2
TILE = 1536  # gallery items of a tile: 9 MB of scores fit into a CPU's cache
SMALL_TILE = 640
ROUND = 8  # tile sizes are multiples of this: products of odd sizes are slower
BLOCKS = 7  # tiles of a small gallery: enough to benefit from symmetry


def tile_size(items: int, candidates: int) -> int:
    """Returns the number of items of a tile, for tiles of similar size with enough items.

    Args:
        items: number of items in the gallery.
        candidates: largest number of candidates per query; a tile has more items, if possible.
    """
    usual = min(TILE, max(SMALL_TILE, items // BLOCKS))
    minimum = min(max(usual, candidates + 1), items)
    blocks = max(1, items // minimum)
    return ROUND * math.ceil(items / blocks / ROUND)


class ScaledGallery:
    """Centered, scaled and shuffled float32 vectors, padded to whole tiles.

    A score is −½‖q − g‖² = [q, 1, −½‖q‖²]·[g, −½‖g‖², 1]. Distances do not depend on the center,
    and rounding errors are smallest for a center near the mean, so that float32 separates even
    nearly collapsed embeddings. The fixed shuffle makes every tile a random sample of the whole
    gallery, for data in any order.

    Args:
        gallery_ND: the items.
        query_BD: all queries.
        tile: number of items of a tile.

    Raises:
        ValueError: see `find_scale`.

    Attributes:
        rows: extended vectors [g, −½‖g‖², 1] (N'×E).
        tile: number of items of a tile.
        order: gallery index of each row (N'), valid but meaningless for padding.
        place: row of each gallery index (N).
        scale: a power of two that scales all norms to at most 1.
        largest: largest norm of a scaled item.
    """

    def __init__(self, gallery_ND: Tensor, query_BD: Tensor, tile: int) -> None:
        N, D = gallery_ND.shape
        self.tile = tile
        self.center = gallery_ND[:: 1 + N // SAMPLE].double().mean(dim=0)
        ends = [end for x in (gallery_ND, query_BD) for end in (x.amin(dim=0), x.amax(dim=0))]
        reach = (torch.stack(ends) - self.center).abs().amax(dim=0).sum()  # at least all norms
        self.scale = find_scale(float(reach))
        # padding is distributed over all tiles, so that each is a random sample
        total = -(-N // tile) * tile
        shuffled = torch.randperm(total, generator=torch.Generator().manual_seed(0))
        shuffled = shuffled.to(gallery_ND.device)
        rows_of_all = shuffled.argsort()
        self.row_of_item, padding = rows_of_all[:N], rows_of_all[N:]
        self.order = shuffled.clamp_(max=N - 1)
        # an explicit type, independent of torch.set_default_dtype
        self.rows = torch.empty(total, D + 2, dtype=torch.float32, device=gallery_ND.device)
        step = max(1, CHUNK_BYTES // (16 * D))
        for start in range(0, total, step):
            part = slice(start, start + step)
            self.rows[part] = self._extended(gallery_ND.index_select(0, self.order[part]))
        self.largest = math.sqrt(-2.0 * float(self.rows[:, -2].min()))
        self.rows[padding, -2] = PADDING_SCORE

    def scaled(self, items_nD: Tensor) -> Tensor:
        """Returns centered and scaled items (n×D, float64)."""
        return (items_nD.double() - self.center).mul_(self.scale)

    def queries(self, query_nD: Tensor) -> Tensor:
        """Returns extended queries [q, 1, −½‖q‖²] (n×E)."""
        return as_queries(self._extended(query_nD))

    def error(self, half_n: Tensor) -> Tensor:
        """Returns the bound on the errors of all scores of queries (n, float64) for −½‖q‖² (n)."""
        norm_n = (-2.0 * half_n.double()).sqrt()
        return score_error(norm_n, self.largest, self.rows.shape[1] - 2, FLOAT32_UNIT)

    def _extended(self, items_nD: Tensor) -> Tensor:
        scaled_nD = self.scaled(items_nD).float()
        norm_n = torch.linalg.vector_norm(scaled_nD, dim=1, dtype=torch.float64)
        half_n1 = (-0.5 * norm_n.square()).float()[:, None]
        return torch.cat([scaled_nD, half_n1, torch.ones_like(half_n1)], dim=1)


def as_queries(rows_nE: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns extended queries (n×E) for rows of `ScaledGallery`."""
    return torch.cat([rows_nE[:, :-2], rows_nE[:, -1:], rows_nE[:, -2:-1]], dim=1, out=out)
