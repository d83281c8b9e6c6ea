"""The gallery made ready for fast and accurate float32 scores.

Shapes: n queries, N gallery items, N' items with padding, c items of one tile, D dimensions.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from dml.retrieval.exact import CHUNK_BYTES
from dml.retrieval.product import fastest_product

PADDING_SCORE = -16.0  # below every true score, which are at least −2


class Gallery:
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
        center: D values, float64.
        scale: a power of two that brings all norms into [0, 1].
        largest: largest norm of a scaled row.
    """

    def __init__(self, gallery_ND: Tensor, query_BD: Tensor, tile: int) -> None:
        N, D = gallery_ND.shape
        device = gallery_ND.device
        self.items, self.tile = N, tile
        self._step = max(1, CHUNK_BYTES // (32 * D))
        middle = torch.zeros(D, dtype=torch.float64, device=device)
        for part in gallery_ND.split(self._step):
            middle += part.sum(dim=0, dtype=torch.float64)
        self.center = middle / N
        own = query_BD is gallery_ND
        largest = self._largest_norm(gallery_ND)
        both = largest if own else max(largest, self._largest_norm(query_BD))
        self.scale = math.ldexp(1.0, -math.frexp(both)[1])
        self.largest = largest * self.scale

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
            self.rows[part], self.half_squares[part] = self.queries(chosen_nD)
        padding = self.place[N:]
        self.rows[padding] = 0.0
        self.half_squares[padding] = PADDING_SCORE
        self._multiply = fastest_product(D, device)

    def queries(self, query_nD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns centered and scaled queries (n×D, float32) and −½‖q‖² of each (n, float32)."""
        centered = (query_nD.double() - self.center).mul_(self.scale).float()
        return centered, -0.5 * norms(centered).square().float()

    def scores(
        self, query_nD: Tensor, half_square_n: Tensor | None, tile: slice, out: Tensor
    ) -> Tensor:
        """Returns −½‖q − g‖² of queries and one tile of the gallery (n×c).

        The squares are added outside of the product: its rounding errors grow with its length and
        with its terms, theirs do not (`score_error`).

        Args:
            query_nD: from `queries`.
            half_square_n: from `queries`. None leaves −½‖q‖² out, which changes no order among the
                scores of one query.
            tile: rows of the gallery.
            out: a buffer (n×c), which may be used.
        """
        product = self._multiply(query_nD, self.rows[tile], out)
        product.add_(self.half_squares[tile])
        return product if half_square_n is None else product.add_(half_square_n[:, None])

    @cached_property
    def rows_and_squares(self) -> Tensor:
        """Vectors with −½‖g‖² as one more dimension (N'×(D + 1)), for other software."""
        return torch.cat([self.rows, self.half_squares[:, None]], dim=1)

    def _largest_norm(self, rows_ND: Tensor) -> float:
        parts = rows_ND.split(self._step)
        return max(float((part.double() - self.center).norm(dim=1).max()) for part in parts)


def norms(rows_nD: Tensor) -> Tensor:
    """Returns the norms (n) of some vectors, summed in float64."""
    return torch.linalg.vector_norm(rows_nD, dim=1, dtype=torch.float64)
