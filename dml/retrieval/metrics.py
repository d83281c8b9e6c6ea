"""P@1, R-precision, MAP@R, Recall@K and MRR@R over exact neighbors, and mAP.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.core.metric_names import RECALL
from dml.retrieval.exact.average_precision import count_average_precision
from dml.retrieval.exact.full_ranking import FullRanking
from dml.retrieval.exact.search import ExactSearch, SearchOptions
from dml.retrieval.inputs import (
    ArrayLike,
    check_counts,
    check_embeddings,
    check_labeled,
    check_one_dimension,
    check_self_index,
    working_memory,
)

MAX_LISTED = 32  # Recall@K is computed from lists of neighbors up to this K, above it from ranks


# Metrics that depend on the first R ranks of a query; labels are in `dml.core.metric_names`.
# Recall@K, which may need more ranks, is computed separately.
METRICS = ("precision_at_1", "r_precision", "map_at_r")


def score_rankings(hits_nk: Tensor, relevant_n: Tensor) -> Tensor:
    """Returns the METRICS of each query (3×n, float64).

    Args:
        hits_nk: whether the item at each rank is relevant; k is at least the largest R.
        relevant_n: R, the number of relevant items of each query, 1 or more.
    """
    longest = hits_nk.shape[1]
    if hits_nk.device.type == "cpu":  # on a GPU, reading the number would wait
        longest = int(relevant_n.max())
    rank_r = torch.arange(1, longest + 1, device=relevant_n.device)
    relevant_nr = hits_nk[:, :longest] & (rank_r <= relevant_n[:, None])
    found_nr = relevant_nr.cumsum(dim=1)
    precision_nr = (found_nr.double() / rank_r).masked_fill_(~relevant_nr, 0.0)
    R_n = relevant_n.double()
    return torch.stack(
        [hits_nk[:, 0].double(), found_nr[:, -1] / R_n, precision_nr.sum(dim=1) / R_n]
    )


def concatenate(
    embeddings: Sequence[ArrayLike], normalize: Callable[[Tensor], Tensor] = F.normalize
) -> Tensor:
    """Returns the concatenated embeddings of several models, as in the MLRC benchmark.

    Each model's embeddings are normalized, concatenated, and normalized again.

    Args:
        embeddings: one B×D_m matrix per model, with rows in the same order; half precision is
            converted to float32.
        normalize: normalization of a model's output at evaluation; L2 by default.

    Returns:
        B × ΣD_m embeddings.

    Raises:
        ValueError: there are no matrices, one is invalid, or their lengths differ.
    """
    if not embeddings:
        raise ValueError("embeddings: no models to concatenate")
    if len({len(part) for part in embeddings}) != 1:
        lengths = [len(part) for part in embeddings]
        raise ValueError(f"embeddings of the models must have one length, got {lengths}")
    parts = []
    for number, part in enumerate(embeddings):
        parts.append(normalize(check_embeddings(part, f"embeddings[{number}]")))
    return normalize(torch.cat(parts, dim=1))


def retrieval_metrics(
    embeddings: ArrayLike,
    labels: ArrayLike,
    gallery_embeddings: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    *,
    self_index: ArrayLike | None = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    average: str = "image",
    reciprocal_rank: bool = False,
    **search: Unpack[SearchOptions],
) -> dict[str, float | int]:
    """Returns the retrieval metrics of embeddings: P@1, R-precision, MAP@R, Recall@K and MRR@R.

    With R the number of relevant gallery items of a query, itself excluded: R-precision is the
    share of relevant items among the first R, MAP@R = (1/R) Σ_{i≤R} P(i)·rel(i), Recall@K is 1 if a
    relevant item is among the first K (Musgrave et al., A Metric Learning Reality Check). MRR@R is
    1/rank of the nearest relevant item, or 0 if this rank is above R. Queries without any relevant
    item are ignored.

    Args:
        embeddings: B×D queries, a tensor, an array, a list or a table of pandas, compared by
            Euclidean distance without normalization (for unit vectors, the order is that of the
            cosine similarity).
        labels: B integers or strings.
        gallery_embeddings: N×D items to search; None: the queries are the gallery, and a query is
            not its own neighbor.
        gallery_labels: N integers or strings, required with `gallery_embeddings`.
        self_index: position of each query in the gallery (B integers), which is excluded from its
            neighbors; −1 for a query that is not in the gallery. None: no query is.
        recall_at: values of K. A K above the size of the gallery means the whole gallery, so that
            small datasets accept the values of K of large ones.
        average: "image": mean over the queries; "class": mean over the classes of the means over
            the queries of a class.
        reciprocal_rank: whether MRR@R is returned as well.
        search: `backend` ("torch", "faiss" or "auto") and `memory_mb` (bound on the size of the
            working buffers), as for `nearest_neighbors`.

    Returns:
        `precision_at_1`, `r_precision`, `map_at_r`, `recall_at_<K>` and `mrr_at_r`: means over the
        queries with a relevant item, 0–1; `queries`: the number of these queries;
        `queries_without_match`: the number of ignored queries.

    Raises:
        ValueError: embeddings, labels, a K or `self_index` are invalid, or no query has a
            relevant item.

    Example:
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> retrieval_metrics(embeddings, labels)["map_at_r"]
        1.0
    """
    check_counts(recall_at, "recall_at")
    _check_average(average)
    query, gallery, *classes = check_labeled(embeddings, labels, gallery_embeddings, gallery_labels)
    query_B, gallery_N = classes
    self_B = _self_indices(self_index, gallery is None, query_B, gallery_N)
    relevant_B = torch.bincount(gallery_N, minlength=int(query_B.max()) + 1)[query_B]
    relevant_B -= (self_B >= 0).long()
    # queries are sorted by R, so that a large class increases the cost of its own chunks only
    order_B = torch.argsort(relevant_B, stable=True)
    rows = order_B[relevant_B[order_B] > 0]
    if not len(rows):
        raise ValueError("labels: no query has a relevant item in the gallery")

    # for classes about as large as K, a list is cheaper than the rank of the nearest relevant item
    longest = max(MAX_LISTED, 4 * int(relevant_B.max()))
    min_k = max((K for K in recall_at if longest >= K), default=1)
    k_n = relevant_B[rows].clamp(min=min_k, max=len(gallery_N) - (gallery is None))
    exact = ExactSearch(query, gallery, max_k=int(k_n[-1]), self_index=self_B, **search)
    first_B = torch.full_like(relevant_B, len(gallery_N))
    values_MB = query.new_zeros(len(METRICS), len(relevant_B), dtype=torch.float64)

    def score(part: Tensor, indices_nk: Tensor) -> None:
        classes_nk = gallery_N.index_select(0, indices_nk.flatten()).view_as(indices_nk)
        hits_nk = classes_nk == query_B[part, None]
        first = hits_nk.long().argmax(dim=1)
        first_B[part] = torch.where(hits_nk.any(dim=1), first, len(gallery_N))
        values_MB[:, part] = score_rankings(hits_nk, relevant_B[part])

    exact.map_chunks(rows, k_n, score, (query_B, gallery_N))
    unlisted = rows[first_B[rows] == len(gallery_N)]
    if len(unlisted) and max(recall_at, default=0) > int(k_n[0]):
        first_B[unlisted] = exact.first_ranks(unlisted, (query_B, gallery_N), max(recall_at))
    values = dict(zip(METRICS, values_MB[:, rows], strict=True))
    values |= {f"{RECALL}{K}": (first_B[rows] < K).double() for K in recall_at}
    if reciprocal_rank:
        within_n = first_B[rows] < relevant_B[rows]
        values["mrr_at_r"] = within_n / (first_B[rows].double() + 1)
    means = _average(torch.stack([*values.values()]), query_B[rows], average)
    return {
        **dict(zip(values, means.tolist(), strict=True)),
        "queries": len(rows),
        "queries_without_match": len(query_B) - len(rows),
    }


def _check_average(average: str) -> None:
    if average not in ("image", "class"):
        raise ValueError(f"average must be 'image' or 'class', got {average!r}")


def _self_indices(
    self_index: ArrayLike | None, own_gallery: bool, query_B: Tensor, gallery_N: Tensor
) -> Tensor:
    """Returns the position of each query in the gallery (B), −1 for none."""
    if own_gallery:
        if self_index is not None:
            raise ValueError("self_index must be None without gallery_embeddings")
        return torch.arange(len(query_B), device=query_B.device)
    if self_index is None:
        return torch.full_like(query_B, -1)
    return check_self_index(self_index, query_B, gallery_N)


def _average(values_Mn: Tensor, classes_n: Tensor, average: str) -> Tensor:
    """Returns the means of values of queries, or the means over classes of their means (M)."""
    if average == "image":
        return values_Mn.mean(dim=1)
    slots_n, counts = classes_n.unique(return_inverse=True, return_counts=True)[1:]
    sums = values_Mn.new_zeros(len(values_Mn), len(counts)).index_add_(1, slots_n, values_Mn)
    return (sums / counts).mean(dim=1)


def mean_average_precision(
    embeddings: ArrayLike,
    labels: ArrayLike,
    gallery_embeddings: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    *,
    self_index: ArrayLike | None = None,
    average: str = "image",
    memory_mb: float | None = None,
) -> float:
    """Returns the mean over queries of (1/R) Σ_i P(i)·rel(i), over all ranks i of the gallery.

    MAP@R of `retrieval_metrics` is this sum up to rank R. Ties and queries without a relevant item
    are treated as there, and so is the order of items: near ties are compared by differences.

    Args:
        embeddings: B×D queries, a tensor, an array, a list or a table of pandas.
        labels: B integers or strings.
        gallery_embeddings: N×D items to rank; None: the queries are the gallery, and a query is not
            its own neighbor.
        gallery_labels: N integers or strings, required with `gallery_embeddings`.
        self_index: position of each query in the gallery (B integers), which is not ranked; −1 for
            a query that is not in the gallery. None: no query is.
        average: "image": mean over the queries; "class": mean over the classes of the means over
            the queries of a class.
        memory_mb: bound on the size of the working buffers, as for `nearest_neighbors`.

    Returns:
        mAP, 0–1.

    Raises:
        ValueError: embeddings, labels or `self_index` are invalid, or no query has a relevant
            item.
    """
    _check_average(average)
    query, searched, query_B, gallery_N = check_labeled(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    gallery = query if searched is None else searched
    check_one_dimension(query, gallery, "embeddings and gallery_embeddings")
    self_B = _self_indices(self_index, searched is None, query_B, gallery_N)
    memory_bytes = working_memory(memory_mb, query.device)
    counted = count_average_precision(query, gallery, self_B, (query_B, gallery_N), memory_bytes)
    if counted is not None:
        rows, precisions = counted
        return float(_average(precisions[None], query_B[rows], average))
    ranking = FullRanking(query, gallery, self_B, memory_bytes)
    rank_N = torch.arange(1, len(gallery) + 1, device=query.device, dtype=torch.float64)
    values, classes = [], []
    for rows_n, hits_nN in ranking.relevance(query_B, gallery_N):
        precision_nN = hits_nN.cumsum(dim=1) / rank_N * hits_nN
        counts_n = hits_nN.sum(dim=1)
        values.append((precision_nN.sum(dim=1) / counts_n)[counts_n > 0])
        classes.append(query_B[rows_n][counts_n > 0])
    found_n = torch.cat(values)
    if not len(found_n):
        raise ValueError("labels: no query has a relevant item in the gallery")
    return float(_average(found_n[None], torch.cat(classes), average))
