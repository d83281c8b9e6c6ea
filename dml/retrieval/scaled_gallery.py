"""The gallery centered and scaled for fast and accurate float32 scores.

Shapes: n queries, N gallery items, N' items with padding, c items of one tile, D dimensions.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from dml.retrieval.exact_order import CHUNK_BYTES

SAFE = 2.0**-60  # norms from here to 1 / SAFE leave float32 differences accurate
PADDING_SCORE = -16.0  # below every true score, which are at least −2
TILE = 1536  # gallery items of a tile: 9 MB of scores stay in a CPU's cache
SMALL_TILE = 640
ROUND = 8  # tiles are multiples of this: products of odd sizes are slower
BLOCKS = 7  # tiles of a small gallery: many enough to leave out the half that symmetry spares


def tile_size(items: int, candidates: int) -> int:
    """Returns the items of a tile, so that tiles are of like size and hold more than `candidates`.

    Args:
        items: of the gallery.
        candidates: the most that will be searched for one query.
    """
    usual = min(TILE, max(SMALL_TILE, items // BLOCKS))
    least = min(max(usual, candidates + 1), items)
    blocks = max(1, items // least)
    return ROUND * math.ceil(items / blocks / ROUND)


class ScaledGallery:
    """Centered, scaled and shuffled float32 vectors, padded to whole tiles.

    A score is −½‖q − g‖² = q·g − ½‖g‖² − ½‖q‖². The order of the distances is the same around any
    center, and rounding errors are smallest near the middle of the data, so that float32 tells even
    nearly collapsed embeddings apart. The fixed shuffle makes every tile a fair sample of the whole
    gallery, however the data is ordered.

    Args:
        gallery_ND: the items.
        query_BD: all queries there will be; the same tensor if the items are their own queries.
        tile: items of a tile.

    Attributes:
        rows: vectors (N'×D).
        half_squares: −½‖g‖² of each row (N').
        items: N.
        tile: items of a tile.
        order: gallery index of each row (N'), N and above for padding.
        place: row of each gallery index (N').
        center: a point near the middle of the items, D values, float32 or float64.
        scale: a power of two that brings all norms into [0, 1].
        largest: largest norm of a scaled row.
    """

    def __init__(self, gallery_ND: Tensor, query_BD: Tensor, tile: int) -> None:
        N, D = gallery_ND.shape
        device = gallery_ND.device
        self.items, self.tile = N, tile
        self._step = max(1, CHUNK_BYTES // (64 * D))
        # Any center will do. One in the vectors' own type leaves their differences to it exact but
        # for one rounding, without a detour over float64.
        own_type = torch.promote_types(gallery_ND.dtype, query_BD.dtype)
        self.center, largest = self._middle(gallery_ND, query_BD, own_type)
        if not SAFE < largest < 1 / SAFE:
            self.center, largest = self._middle(gallery_ND, query_BD, torch.float64)
        self.scale = math.ldexp(1.0, -math.frexp(largest)[1])

        # padding is spread over all tiles, for each to be a fair sample
        total = -(-N // tile) * tile
        generator = torch.Generator().manual_seed(0)
        self.order = torch.randperm(total, generator=generator).to(device)
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(total, device=device)
        # whatever torch.set_default_dtype says
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
        """Returns −½‖q − g‖² of queries and one tile of the gallery (n×c).

        The squares are added outside of the product: its rounding errors grow with its length and
        with its terms, theirs do not (`score_error`).

        Args:
            query_nD: from `center_queries`.
            half_square_n: from `center_queries`. None leaves −½‖q‖² out, which changes no order
                among the scores of one query.
            tile: rows of the gallery.
            out: a buffer (n×c), which is returned.
        """
        torch.mm(query_nD, self.rows[tile].T, out=out)  # fresh memory would halve the speed
        out.add_(self.half_squares[tile])
        return out if half_square_n is None else out.add_(half_square_n[:, None])

    @cached_property
    def rows_and_squares(self) -> Tensor:
        """Vectors with −½‖g‖² as one more dimension (N'×(D + 1)), for other software."""
        return torch.cat([self.rows, self.half_squares[:, None]], dim=1)

    def _middle(
        self, gallery_ND: Tensor, query_BD: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, float]:
        """Returns a point near the gallery's mean and the largest norm around it, or a bit more."""
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
        """Writes vectors centered and scaled into some rows, and returns their half squares."""
        if self.center.dtype == torch.float32:
            torch.sub(chosen_nD, self.center, out=rows_nD).mul_(self.scale)
        else:
            rows_nD.copy_((chosen_nD.double() - self.center).mul_(self.scale))
        return -0.5 * norms(rows_nD).square().float()


def norms(rows_nD: Tensor) -> Tensor:
    """Returns the norms (n) of some vectors, summed in float64."""
    return torch.linalg.vector_norm(rows_nD, dim=1, dtype=torch.float64)
