"""P@1, R-precision, MAP@R and Recall@K over exact neighbors.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.core.metric_names import RECALL
from dml.retrieval.exact_search import MEMORY_MB, ExactSearch
from dml.retrieval.inputs import Numbers, check_counts, check_embeddings, check_labels

MAX_LISTED = 32  # Recall@K is read from a list of neighbors up to this K, beyond it from ranks


def concatenate(
    embeddings: Sequence[Tensor], normalize: Callable[[Tensor], Tensor] = F.normalize
) -> Tensor:
    """Concatenates the embeddings of several models, as the MLRC benchmark does.

    Each model's embeddings are normalized, concatenated, and normalized again.

    Args:
        embeddings: one B×D_m matrix per model, rows in one order; half precision is converted to
            float32.
        normalize: normalization of a model's output at evaluation; L2 by default.

    Returns:
        B × ΣD_m embeddings.

    Raises:
        ValueError: no embeddings, or matrices of different length.
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
    recall_at: Sequence[int] = (1, 2, 4, 8),
    backend: str = "auto",
    memory_mb: float = MEMORY_MB,
) -> dict[str, float | int]:
    """Scores embeddings by how well their neighbors share their label.

    With R the number of relevant gallery items of a query, itself excluded: R-precision is the
    share of relevant items among the first R, MAP@R = (1/R) Σ_{i≤R} P(i)·rel(i), Recall@K is 1 if a
    relevant item is among the first K (Musgrave et al., A Metric Learning Reality Check). Queries
    without any relevant item are left out.

    Args:
        embeddings: B×D queries, a tensor or a NumPy array, compared by Euclidean distance as they
            are (see `nearest_neighbors`; for unit vectors this is the order of cosine similarity).
        labels: B integers.
        gallery_embeddings: N×D items to search; None ranks the queries among themselves, each
            without itself.
        gallery_labels: N integers, together with `gallery_embeddings`.
        recall_at: values of K. A K beyond the size of the gallery means the whole gallery, so that
            the lists of large datasets work on tiny ones too.
        backend: "torch", "faiss" or "auto", as for `nearest_neighbors`.
        memory_mb: bound on the size of the working buffers.

    Returns:
        `precision_at_1`, `r_precision`, `map_at_r` and `recall_at_<K>`: means over the queries that
        have a relevant item, fractions of 1; `queries`: how many these are;
        `queries_without_match`: how many were left out.

    Raises:
        ValueError: embeddings that `nearest_neighbors` refuses, labels of another length or not
            integers, a K that is not a positive integer, or no query with a relevant item.
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
    device = embeddings.device
    query_B, gallery_N = common_classes(labels.to(device), searched_labels)
    relevant_B = torch.bincount(gallery_N, minlength=int(query_B.max()) + 1)[query_B]
    if gallery is None:
        relevant_B -= 1
    # queries with like R stand together, so that one large class does not cost all the others
    order_B = torch.argsort(relevant_B, stable=True)
    rows = order_B[relevant_B[order_B] > 0]
    if not len(rows):
        raise ValueError("labels: no query has a relevant item in the gallery")

    items = len(embeddings) - 1 if gallery is None else len(gallery)
    classes = (query_B, gallery_N)
    k_n = relevant_B[rows].clamp(min=_list_length(recall_at, int(relevant_B.max())), max=items)
    search = ExactSearch(
        embeddings, gallery, most=int(k_n[-1]), backend=backend, memory_mb=memory_mb
    )
    first_B = torch.full_like(relevant_B, items)

    def score(part: Tensor, indices_nk: Tensor) -> Tensor:
        found_nk = gallery_N.index_select(0, indices_nk.flatten()).view_as(indices_nk)
        hits_nk = found_nk == query_B[part, None]
        first_B[part] = torch.where(hits_nk.any(dim=1), hits_nk.long().argmax(dim=1), items)
        ranked = RankedHits(hits_nk, relevant_B[part])
        return torch.stack([values_of(ranked).sum() for values_of in METRICS.values()])

    sums = torch.stack(search.map_chunks(rows, k_n, score, classes)).sum(dim=0)
    late = rows[first_B[rows] == items]
    if len(late) and max(recall_at, default=0) > int(k_n[0]):
        first_B[late] = search.first_ranks(late, classes, max(recall_at))
    recalls = [(first_B[rows] < K).double().sum() for K in recall_at]
    names = [*METRICS, *(f"{RECALL}{K}" for K in recall_at)]
    means = (torch.stack([*sums, *recalls]) / len(rows)).tolist()
    return {
        **dict(zip(names, means, strict=True)),
        "queries": len(rows),
        "queries_without_match": len(labels) - len(rows),
    }


class RankedHits:
    """Relevance of the first items in the ranking of some queries.

    Attributes:
        hits_nk: whether the item at each rank is relevant; k is at least the largest R.
        R_n: how many relevant items each query has, 1 or more (float64).
        relevant_nr: `hits_nk` for the first R ranks of each query, False beyond them.
        found_nr: how many of the items up to each rank are relevant.
    """

    def __init__(self, hits_nk: Tensor, relevant_n: Tensor) -> None:
        longest = int(relevant_n.max())
        self.rank_r = torch.arange(1, longest + 1, device=relevant_n.device)
        self.hits_nk = hits_nk
        self.relevant_nr = hits_nk[:, :longest] & (self.rank_r <= relevant_n[:, None])
        self.found_nr = self.relevant_nr.cumsum(dim=1)
        self.R_n = relevant_n.double()


def precision_at_1(ranked: RankedHits) -> Tensor:
    """Returns 1 for each query (n) whose nearest item is relevant, else 0."""
    return ranked.hits_nk[:, 0].double()


def r_precision(ranked: RankedHits) -> Tensor:
    """Returns the share of relevant items among the first R of each query (n)."""
    return ranked.found_nr[:, -1] / ranked.R_n


def map_at_r(ranked: RankedHits) -> Tensor:
    """Returns (1/R) Σ_{i≤R} P(i)·rel(i) of each query (n)."""
    precision_nr = ranked.found_nr.double() / ranked.rank_r
    return precision_nr.masked_fill_(~ranked.relevant_nr, 0.0).sum(dim=1) / ranked.R_n


# One value per query from what is relevant at its first R ranks; `dml.core.metric_names` labels
# them. Recall@K, for which more ranks may have to be known, is computed apart.
METRICS: dict[str, Callable[[RankedHits], Tensor]] = {
    function.__name__: function for function in (precision_at_1, r_precision, map_at_r)
}


def common_classes(labels_B: Tensor, gallery_labels_N: Tensor | None) -> tuple[Tensor, Tensor]:
    """Re-indexes arbitrary integer labels of queries and gallery to 0..C−1."""
    if gallery_labels_N is None:
        classes_B = labels_B.unique(return_inverse=True)[1]
        return classes_B, classes_B
    both = torch.cat([labels_B.long(), gallery_labels_N.to(labels_B.device).long()])
    classes = both.unique(return_inverse=True)[1]
    return classes[: len(labels_B)], classes[len(labels_B) :]


def _list_length(recall_at: Sequence[int], largest_R: int) -> int:
    """Returns how many neighbors to list for Recall@K; ranks beyond them are counted."""
    # next to classes as large as K a list is the cheaper way to find the nearest relevant item
    return max((K for K in recall_at if max(MAX_LISTED, 4 * largest_R) >= K), default=1)
