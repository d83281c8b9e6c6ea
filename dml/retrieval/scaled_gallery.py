"""The gallery, centered and scaled for fast and accurate float32 scores.

Shapes: n queries, N gallery items, N' items with padding, c items of one tile, D dimensions.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from dml.retrieval.exact_order import CHUNK_BYTES

SAFE = 2.0**-60  # for norms between SAFE and 1 / SAFE, float32 differences are accurate
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

    A score is −½‖q − g‖² = q·g − ½‖g‖² − ½‖q‖². Distances do not depend on the center, and rounding
    errors are smallest for a center near the mean, so that float32 separates even nearly collapsed
    embeddings. The fixed shuffle makes every tile a random sample of the whole gallery, for data in
    any order.

    Args:
        gallery_ND: the items.
        query_BD: all queries; the tensor `gallery_ND` if the items are the queries.
        tile: number of items of a tile.

    Attributes:
        rows: vectors (N'×D).
        half_squares: −½‖g‖² of each row (N').
        items: N.
        tile: number of items of a tile.
        order: gallery index of each row (N'), N and above for padding.
        place: row of each gallery index (N').
        center: a point near the mean of the items (D), float32 or float64.
        scale: a power of two that scales all norms to [0, 1].
        largest: largest norm of a scaled row.
    """

    def __init__(self, gallery_ND: Tensor, query_BD: Tensor, tile: int) -> None:
        N, D = gallery_ND.shape
        device = gallery_ND.device
        self.items, self.tile = N, tile
        self._step = max(1, CHUNK_BYTES // (64 * D))
        # Any center is valid. With a center of the vectors' type, differences have a single
        # rounding error, without conversion to float64.
        dtype = torch.promote_types(gallery_ND.dtype, query_BD.dtype)
        self.center, largest = self._middle(gallery_ND, query_BD, dtype)
        if not SAFE < largest < 1 / SAFE:
            self.center, largest = self._middle(gallery_ND, query_BD, torch.float64)
        self.scale = math.ldexp(1.0, -math.frexp(largest)[1])

        # padding is distributed over all tiles, so that each is a random sample
        total = -(-N // tile) * tile
        generator = torch.Generator().manual_seed(0)
        self.order = torch.randperm(total, generator=generator).to(device)
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(total, device=device)
        # explicit types, independent of torch.set_default_dtype
        self.rows = torch.empty(total, D, dtype=torch.float32, device=device)
        self.half_squares = torch.empty(total, dtype=torch.float32, device=device)
        for start in range(0, total, self._step):
            part = slice(start, start + self._step)
            chosen_nD = gallery_ND.index_select(0, self.order[part].clamp(max=N - 1))
            self.half_squares[part] = self._write(chosen_nD, self.rows[part])
        self.largest = math.sqrt(-2.0 * float(self.half_squares.min()))
        padding = self.place[N:]
        self.rows[padding] = 0.0
        self.half_squares[padding] = PADDING_SCORE

    def center_queries(self, query_nD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns centered and scaled queries (n×D, float32) and −½‖q‖² of each (n, float32)."""
        rows_nD = torch.empty_like(query_nD, dtype=torch.float32)
        return rows_nD, self._write(query_nD, rows_nD)

    def scores(
        self, query_nD: Tensor, half_square_n: Tensor | None, tile: slice, out: Tensor
    ) -> Tensor:
        """Returns −½‖q − g‖² of queries and a tile of the gallery (n×c).

        The squares are not terms of the product, whose rounding error grows with its length and its
        terms (`score_error`).

        Args:
            query_nD: from `center_queries`.
            half_square_n: from `center_queries`. None omits −½‖q‖², which does not change the
                order of the scores of a query.
            tile: gallery rows.
            out: a buffer (n×c), which is returned.
        """
        torch.mm(query_nD, self.rows[tile].T, out=out)  # new memory would halve the speed
        out.add_(self.half_squares[tile])
        return out if half_square_n is None else out.add_(half_square_n[:, None])

    @cached_property
    def rows_and_squares(self) -> Tensor:
        """Vectors with −½‖g‖² as an additional dimension (N'×(D + 1)), for faiss."""
        return torch.cat([self.rows, self.half_squares[:, None]], dim=1)

    def _middle(
        self, gallery_ND: Tensor, query_BD: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, float]:
        """Returns a point near the gallery's mean, and a bound on the distances to this point."""
        means = [part.to(dtype).mean(dim=0) for part in gallery_ND.split(self._step)]
        center = torch.stack(means).mean(dim=0)
        matrices = (gallery_ND,) if query_BD is gallery_ND else (gallery_ND, query_BD)
        largest = [
            torch.linalg.vector_norm(part.to(dtype) - center, dim=1).max()
            for matrix in matrices
            for part in matrix.split(self._step)
        ]
        return center, 1.001 * float(torch.stack(largest).max())

    def _write(self, chosen_nD: Tensor, rows_nD: Tensor) -> Tensor:
        """Writes centered and scaled vectors to `rows_nD`, and returns −½ of their squares."""
        if self.center.dtype == torch.float32:
            torch.sub(chosen_nD, self.center, out=rows_nD).mul_(self.scale)
        else:
            rows_nD.copy_((chosen_nD.double() - self.center).mul_(self.scale))
        return -0.5 * norms(rows_nD).square().float()


def norms(rows_nD: Tensor) -> Tensor:
    """Returns the norms (n) of vectors, summed in float64."""
    return torch.linalg.vector_norm(rows_nD, dim=1, dtype=torch.float64)
