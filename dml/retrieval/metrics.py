"""P@1, R-precision, MAP@R and Recall@K over exact neighbors.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.core.metric_names import RECALL
from dml.retrieval.exact_search import ExactSearch, SearchOptions
from dml.retrieval.inputs import (
    Numbers,
    check_counts,
    check_embeddings,
    check_labels,
    check_self_index,
)

MAX_LISTED = 32  # Recall@K is computed from lists of neighbors up to this K, above it from ranks


class RankedHits:
    """Relevance of the first items in the rankings of queries.

    Attributes:
        hits_nk: whether the item at each rank is relevant; k is at least the largest R.
        R_n: number of relevant items of each query, 1 or more (float64).
        relevant_nr: `hits_nk` for the first R ranks of each query, False for later ranks.
        found_nr: number of relevant items up to each rank.
    """

    def __init__(self, hits_nk: Tensor, relevant_n: Tensor) -> None:
        longest = hits_nk.shape[1]
        if hits_nk.device.type == "cpu":  # on a GPU, reading the number would wait
            longest = int(relevant_n.max())
        self.rank_r = torch.arange(1, longest + 1, device=relevant_n.device)
        self.hits_nk = hits_nk
        self.relevant_nr = hits_nk[:, :longest] & (self.rank_r <= relevant_n[:, None])
        self.found_nr = self.relevant_nr.cumsum(dim=1)
        self.R_n = relevant_n.double()


def precision_at_1(ranked: RankedHits) -> Tensor:
    """Returns, for each query (n), 1 if its nearest item is relevant, else 0."""
    return ranked.hits_nk[:, 0].double()


def r_precision(ranked: RankedHits) -> Tensor:
    """Returns the share of relevant items among the first R of each query (n)."""
    return ranked.found_nr[:, -1] / ranked.R_n


def map_at_r(ranked: RankedHits) -> Tensor:
    """Returns (1/R) Σ_{i≤R} P(i)·rel(i) of each query (n)."""
    precision_nr = ranked.found_nr.double() / ranked.rank_r
    return precision_nr.masked_fill_(~ranked.relevant_nr, 0.0).sum(dim=1) / ranked.R_n


# Metrics that depend on the first R ranks of a query; labels are in `dml.core.metric_names`.
# Recall@K, which may need more ranks, is computed separately.
METRICS: dict[str, Callable[[RankedHits], Tensor]] = {
    function.__name__: function for function in (precision_at_1, r_precision, map_at_r)
}


def concatenate(
    embeddings: Sequence[Tensor], normalize: Callable[[Tensor], Tensor] = F.normalize
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
        ValueError: there are no matrices, or their lengths differ.
    """
    if not embeddings:
        raise ValueError("embeddings: no models to concatenate")
    if len({len(part) for part in embeddings}) != 1:
        lengths = [len(part) for part in embeddings]
        raise ValueError(f"embeddings of the models must have one length, got {lengths}")
    raised = [part if part.dtype == torch.float64 else part.float() for part in embeddings]
    return normalize(torch.cat([normalize(part) for part in raised], dim=1))


def retrieval_metrics(
    embeddings: Numbers,
    labels: Numbers,
    gallery_embeddings: Numbers | None = None,
    gallery_labels: Numbers | None = None,
    *,
    self_index: Numbers | None = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    average: str = "image",
    **search: Unpack[SearchOptions],
) -> dict[str, float | int]:
    """Returns the retrieval metrics of embeddings: P@1, R-precision, MAP@R and Recall@K.

    With R the number of relevant gallery items of a query, itself excluded: R-precision is the
    share of relevant items among the first R, MAP@R = (1/R) Σ_{i≤R} P(i)·rel(i), Recall@K is 1 if a
    relevant item is among the first K (Musgrave et al., A Metric Learning Reality Check). Queries
    without any relevant item are ignored.

    Args:
        embeddings: B×D queries, a tensor or a NumPy array, compared by Euclidean distance without
            normalization (for unit vectors, the order is that of the cosine similarity).
        labels: B integers.
        gallery_embeddings: N×D items to search; None: the queries are the gallery, and a query is
            not its own neighbor.
        gallery_labels: N integers, required with `gallery_embeddings`.
        self_index: position of each query in the gallery (B integers), which is excluded from its
            neighbors; −1 for a query that is not in the gallery. None: no query is.
        recall_at: values of K. A K above the size of the gallery means the whole gallery, so that
            the values for large datasets are valid for small ones.
        average: "image": mean over the queries; "class": mean over the classes of the means over
            the queries of a class.
        search: `backend` ("torch", "faiss" or "auto") and `memory_mb` (bound on the size of the
            working buffers), as for `nearest_neighbors`.

    Returns:
        `precision_at_1`, `r_precision`, `map_at_r` and `recall_at_<K>`: means over the queries with
        a relevant item, 0–1; `queries`: the number of these queries; `queries_without_match`: the
        number of ignored queries.

        Raises:
            ValueError: embeddings, labels, a K or `self_index` are invalid, or no query has a
                relevant item.
    """
    embeddings = check_embeddings(embeddings, "embeddings")
    labels = check_labels(labels, len(embeddings), "labels")
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    gallery = searched_labels = None
    if gallery_embeddings is not None and gallery_labels is not None:
        gallery = check_embeddings(gallery_embeddings, "gallery_embeddings")
        searched_labels = check_labels(gallery_labels, len(gallery), "gallery_labels")
    check_counts(recall_at, "recall_at")
    if average not in ("image", "class"):
        raise ValueError(f"average must be 'image' or 'class', got {average!r}")
    classes = query_B, gallery_N = common_classes(labels.to(embeddings.device), searched_labels)
    if gallery is None:
        if self_index is not None:
            raise ValueError("self_index must be None without gallery_embeddings")
        self_B = torch.arange(len(labels), device=query_B.device)
    elif self_index is None:
        self_B = torch.full_like(query_B, -1)
    else:
        self_B = check_self_index(self_index, *classes)
    relevant_B = torch.bincount(gallery_N, minlength=int(query_B.max()) + 1)[query_B]
    relevant_B -= (self_B >= 0).long()
    # queries are sorted by R, so that a large class increases the cost of its own chunks only
    order_B = torch.argsort(relevant_B, stable=True)
    rows = order_B[relevant_B[order_B] > 0]
    if not len(rows):
        raise ValueError("labels: no query has a relevant item in the gallery")

    items = len(embeddings if gallery is None else gallery)
    min_k = _list_length(recall_at, int(relevant_B.max()))
    groups = rows[self_B[rows] >= 0], rows[self_B[rows] < 0]
    scored = []
    for part, leaves_one_out in zip(groups, (True, False), strict=True):
        if not len(part):
            continue
        k_n = relevant_B[part].clamp(min=min_k, max=items - leaves_one_out)
        excluded = self_B if leaves_one_out and gallery is not None else None
        exact = ExactSearch(embeddings, gallery, most=int(k_n[-1]), self_index=excluded, **search)
        scored.append(_score(exact, (part, k_n), classes, relevant_B, recall_at))
    if average == "image":
        means = torch.stack([sums for sums, _ in scored]).sum(dim=0) / len(rows)
    else:
        values_Mn = torch.cat([values for _, values in scored], dim=1)
        means = _mean_of_classes(values_Mn, query_B[torch.cat(groups)])
    names = [*METRICS, *(f"{RECALL}{K}" for K in recall_at)]
    return {
        **dict(zip(names, means.tolist(), strict=True)),
        "queries": len(rows),
        "queries_without_match": len(labels) - len(rows),
    }


def _score(
    search: ExactSearch,
    rows_and_k: tuple[Tensor, Tensor],
    classes: tuple[Tensor, Tensor],
    relevant_B: Tensor,
    recall_at: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Returns the sums of M metrics over n queries (M), and their values (M×n).

    Args:
        search: the search of all queries.
        rows_and_k: indices of the queries and numbers of neighbors (both n), k ascending.
        classes: classes of all queries and gallery items.
        relevant_B: R of all queries.
        recall_at: values of K.
    """
    (rows, k_n), (query_B, gallery_N), items = rows_and_k, classes, search.available
    first_B = torch.full_like(relevant_B, items)
    values_MB = search.query.new_zeros(len(METRICS), len(relevant_B), dtype=torch.float64)

    def score(part: Tensor, indices_nk: Tensor) -> Tensor:
        classes_nk = gallery_N.index_select(0, indices_nk.flatten()).view_as(indices_nk)
        hits_nk = classes_nk == query_B[part, None]
        first_B[part] = torch.where(hits_nk.any(dim=1), hits_nk.long().argmax(dim=1), items)
        ranked = RankedHits(hits_nk, relevant_B[part])
        values = [values_of(ranked) for values_of in METRICS.values()]
        values_MB[:, part] = torch.stack(values)
        return part

    parts = search.map_chunks(rows, k_n, score, classes)
    sums = torch.stack([values_MB[:, part].sum(dim=1) for part in parts]).sum(dim=0)
    unlisted = rows[first_B[rows] == items]
    if len(unlisted) and max(recall_at, default=0) > int(k_n[0]):
        first_B[unlisted] = search.first_ranks(unlisted, classes, max(recall_at))
    recalls = [(first_B[rows] < K).double() for K in recall_at]
    all_sums = torch.stack([*sums, *(recall.sum() for recall in recalls)])
    return all_sums, torch.stack([*values_MB[:, rows], *recalls])


def _mean_of_classes(values_Mn: Tensor, classes_n: Tensor) -> Tensor:
    """Returns the means over classes of the means over the queries of each class (M)."""
    slots_n, counts = classes_n.unique(return_inverse=True, return_counts=True)[1:]
    sums = values_Mn.new_zeros(len(values_Mn), len(counts)).index_add_(1, slots_n, values_Mn)
    return (sums / counts).mean(dim=1)


def common_classes(labels_B: Tensor, gallery_labels_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the classes 0..C−1 of queries and gallery items for arbitrary integer labels."""
    if gallery_labels_N is None:
        classes_B = labels_B.unique(return_inverse=True)[1]
        return classes_B, classes_B
    both = torch.cat([labels_B.long(), gallery_labels_N.to(labels_B.device).long()])
    classes = both.unique(return_inverse=True)[1]
    return classes[: len(labels_B)], classes[len(labels_B) :]


def _list_length(recall_at: Sequence[int], largest_R: int) -> int:
    """Returns the number of neighbors to list for Recall@K; a larger K uses ranks."""
    # for classes about as large as K, a list is cheaper than the rank of the nearest relevant item
    return max((K for K in recall_at if max(MAX_LISTED, 4 * largest_R) >= K), default=1)
