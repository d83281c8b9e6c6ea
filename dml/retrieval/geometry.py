"""Geometry of embeddings: the measures that the papers report in addition to retrieval.

All measures are computed in float64, in tiles of bounded memory, for the embeddings as passed:
normalize them first if the measure of a paper is defined on the sphere.

Shapes: N items, D dimensions, M points already covered, k picks, P proxies, L similarities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from dml.retrieval.exact_order import first_equal_items, score_error, squared_distances
from dml.retrieval.exact_search import nearest_neighbors
from dml.retrieval.inputs import check_counts, check_embeddings, check_labels, check_one_dimension

TILE = 1024
FLOAT64_UNIT = 2.0**-53
ACCURACY = 2.0**-26  # relative, of squared distances, which are compared in float32
CLUSTERING_SEED = 0  # of k-means, so that the same embeddings have the same scores


def alignment(embeddings: Tensor, labels: Tensor) -> float:
    """Returns the mean ‖f − f'‖² over all pairs of items of the same class (Metrix, §4.3).

    Computed as Σ_{i,j∈c} ‖f_i − f_j‖² = 2 n_c Σ_{i∈c} ‖f_i − mean_c‖², without listing pairs.

    Args:
        embeddings: N×D.
        labels: N integers.

    Returns:
        A value ≥ 0, for unit vectors ≤ 4; lower is better.

    Raises:
        ValueError: invalid embeddings or labels, or no class with two items.
    """
    total, pairs = 0.0, 0
    for members in embeddings_by_class(embeddings, labels):
        count = len(members)
        total += 2 * count * float((members - members.mean(dim=0)).square().sum())
        pairs += count * (count - 1)
    if not pairs:
        raise ValueError("labels: no class has two items, so no pair can be aligned")
    return total / pairs


def uniformity(embeddings: Tensor, t: float = 2.0) -> float:
    """Returns log E exp(−t ‖f − f'‖²) over all pairs of items (Metrix, §4.3, with t = 2).

    Args:
        embeddings: N×D, N ≥ 2.
        t: positive.

    Returns:
        A value ≤ 0; lower is more uniform.

    Raises:
        ValueError: invalid embeddings, or a single item.
    """
    embeddings = _check_at_least_two(embeddings)
    parts = [squared.mul_(-t).flatten().logsumexp(dim=0) for _, _, squared in _pairs(embeddings)]
    pairs = len(embeddings) * (len(embeddings) - 1) // 2
    return float(torch.stack(parts).logsumexp(dim=0)) - math.log(pairs)


def utilization(queries: Tensor, training: Tensor | Iterable[Tensor]) -> float:
    """Returns the mean squared distance of queries to their nearest training embedding.

    This is u(Q, X) of Metrix, §4.3.

    Args:
        queries: B×D test embeddings.
        training: N×D training embeddings, or an iterable of such matrices (such as epochs of
            mixed embeddings), which are processed one at a time.

    Returns:
        A value ≥ 0; lower is better.

    Raises:
        ValueError: invalid embeddings, or no training embeddings.
    """
    nearest: Tensor | None = None
    for part in [training] if isinstance(training, Tensor) else training:
        distances = nearest_neighbors(queries, part, k=1).distances.double().squeeze(1)
        nearest = distances if nearest is None else torch.minimum(nearest, distances)
    if nearest is None:
        raise ValueError("training is empty: no embeddings to compare with")
    return float(nearest.square().mean())


def inter_class_distance(embeddings: Tensor, labels: Tensor) -> float:
    """Returns the mean ‖f − f'‖ over all pairs of items of different classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers.

    Raises:
        ValueError: invalid embeddings or labels, or a single class.
    """
    embeddings = _check_at_least_two(embeddings)
    check_labels(labels, len(embeddings), "labels")
    labels = labels.to(embeddings.device)
    total, pairs = 0.0, 0
    for rows, columns, squared in _pairs(embeddings, keep_shape=True):
        different = labels[rows, None] != labels[columns]
        if rows == columns:
            different.triu_(diagonal=1)
        total += float(squared.sqrt_().mul_(different).sum())
        pairs += int(different.sum())
    if not pairs:
        raise ValueError("labels: a single class has no inter-class distance")
    return total / pairs


def match_error_rates(embeddings: Tensor, labels: Tensor, rates: Sequence[float]) -> list[float]:
    """Returns FNMR@FMR: the error on pairs of one class for given errors on all other pairs.

    A pair matches if its distance is below a threshold. The false match rate (FMR) is the share of
    pairs of different classes that match, the false non-match rate (FNMR) the share of pairs of the
    same class that do not. The threshold is the largest one at which the FMR is at most the given
    rate. Squared distances are rounded to float32, and thresholds are found by counting their
    upper and then their lower 16 bits, without a list of pairs.

    Args:
        embeddings: N×D.
        labels: N integers.
        rates: false match rates, 0 to 1, without 1.

    Returns:
        For each rate a value from 0 to 1; lower is better.

    Raises:
        ValueError: invalid embeddings or labels, no pair of the same class, or none of different
            classes.
    """
    embeddings = _check_at_least_two(embeddings)
    labels = check_labels(labels, len(embeddings), "labels").to(embeddings.device)
    upper = _count_bits(embeddings, labels)
    genuine, impostor = upper.sum(dim=1).tolist()
    if not genuine or not impostor:
        raise ValueError("labels: there must be pairs of the same and of different classes")
    errors = []
    for rate in rates:
        matches = torch.tensor(int(rate * impostor), device=upper.device)  # of different classes
        place = torch.searchsorted(upper[1].cumsum(0), matches, right=True)
        lower = _count_bits(embeddings, labels, int(place))
        matches -= upper[1, :place].sum()
        threshold = torch.searchsorted(lower[1].cumsum(0), matches, right=True)
        matching = int(upper[0, :place].sum() + lower[0, :threshold].sum())
        errors.append(1 - matching / genuine)
    return errors


def _count_bits(embeddings: Tensor, labels: Tensor, upper: int | None = None) -> Tensor:
    """Returns histograms of the distances, for pairs of the same class and all others (2×65536).

    The bins are the upper 16 bits of the squared distances in float32; if `upper` is given, the
    lower 16 bits of the distances with these upper bits.
    """
    counts = torch.zeros(2, 2**16, dtype=torch.long, device=embeddings.device)
    for rows, columns, squared in _pairs(embeddings, keep_shape=True):
        bits = squared.float().view(torch.int32)  # ordered as the distances, which are not negative
        listed = torch.ones_like(bits, dtype=torch.bool)
        if rows == columns:
            listed.triu_(diagonal=1)
        if upper is not None:
            listed &= bits >> 16 == upper
        kept = bits >> 16 if upper is None else bits & 0xFFFF
        same = labels[rows, None] == labels[columns]
        for count, mask in zip(counts, (same, ~same), strict=True):
            count += torch.bincount(kept[listed & mask], minlength=2**16)
    return counts


def _check_at_least_two(embeddings: Tensor) -> Tensor:
    embeddings = check_embeddings(embeddings, "embeddings")
    if len(embeddings) < 2:
        raise ValueError("embeddings: a single item has no pairs")
    return embeddings


def _pairs(
    embeddings_ND: Tensor, *, keep_shape: bool = False
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yields tiles of squared distances that contain every pair once.

    A tile on the diagonal is reduced to its pairs i < j, unless `keep_shape` is set. Products are
    fast, but inaccurate for items that are near each other and far from the center: these are
    compared by their differences.
    """
    first_N = first_equal_items(embeddings_ND)
    center = embeddings_ND.mean(dim=0, dtype=torch.float64)
    starts = range(0, len(embeddings_ND), TILE)
    for row in starts:
        rows_nD = embeddings_ND[row : row + TILE].double() - center
        for column in starts[row // TILE :]:
            columns_cD = embeddings_ND[column : column + TILE].double() - center
            squared = _squares(rows_nD, columns_cD)
            differ = first_N[row : row + TILE, None] != first_N[column : column + TILE]
            squared.masked_fill_(~differ, 0)
            inaccurate = differ & (squared < _least_accurate(rows_nD, columns_cD))
            places_P, others_P = inaccurate.nonzero(as_tuple=True)
            squared[places_P, others_P] = squared_distances(
                embeddings_ND, embeddings_ND, places_P + row, others_P + column
            )[: len(places_P)]
            if row == column and not keep_shape:
                above = torch.ones_like(squared, dtype=torch.bool).triu_(diagonal=1)
                squared = squared[above]
            if squared.numel():
                yield slice(row, row + TILE), slice(column, column + TILE), squared


def _squares(rows_nD: Tensor, columns_cD: Tensor) -> Tensor:
    """Returns squared distances by products (n×c)."""
    squares = torch.addmm(columns_cD.square().sum(dim=1), rows_nD, columns_cD.T, alpha=-2)
    return squares.add_(rows_nD.square().sum(dim=1)[:, None]).clamp_(min=0)


def _least_accurate(rows_nD: Tensor, columns_cD: Tensor) -> Tensor:
    """Returns the value from which `_squares` are accurate (n×c)."""
    lengths_n1, dim = rows_nD.norm(dim=1, keepdim=True), rows_nD.shape[1]
    return score_error(lengths_n1, columns_cD.norm(dim=1), dim, FLOAT64_UNIT) * (2 / ACCURACY)


def proxy_alignment(
    proxies: Tensor, proxy_labels: Tensor, embeddings: Tensor, labels: Tensor
) -> float:
    """Returns W2, the distance of proxies to the items of their class (PFML, Table 3).

    Per class, this is the mean distance of the pairs in the optimal assignment of proxies to
    distinct items, of which there are min(k, n_c). The result is the mean over classes with both.

    Args:
        proxies: P×D.
        proxy_labels: P integers.
        embeddings: N×D.
        labels: N integers.

    Raises:
        ValueError: invalid arguments, or no class with proxies and items.
    """
    from scipy.optimize import linear_sum_assignment

    proxies = check_embeddings(proxies, "proxies")
    check_labels(proxy_labels, len(proxies), "proxy_labels")
    embeddings = check_embeddings(embeddings, "embeddings")
    check_labels(labels, len(embeddings), "labels")
    check_one_dimension(proxies, embeddings, "proxies and embeddings")
    shared = sorted(set(proxy_labels.tolist()) & set(labels.tolist()))
    if not shared:
        raise ValueError("labels: no class has both proxies and items")
    order_of_proxies, order = items_by_label(proxy_labels), items_by_label(labels)
    means = []
    for label in shared:
        cost = _distances(
            proxies[order_of_proxies[label]].double(), embeddings[order[label]].double()
        ).cpu()
        means.append(float(cost[linear_sum_assignment(cost.numpy())].mean()))
    return sum(means) / len(means)


def greedy_k_center(pool: Tensor, k: int, covered: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns the greedy k-center selection: each pick is the point farthest from all centers.

    The covering radius is at most twice the optimal one (Gonzalez, 1985). Picks have distinct
    indices even if points are equal; ties go to the lower index.

    Args:
        pool: N×D points.
        k: number of picks, 1 to N.
        covered: M×D initial centers (CCP's proxies of the previous stage, Alg. 2). Without them
            the first pick is the point nearest to the pool's mean.

    Returns:
        Indices of the picks (k) in the order of picking, and the covering radius after each (k,
        float64, non-increasing): the largest distance of a pool point to its nearest center.

    Raises:
        ValueError: invalid points or k out of range.
    """
    pool = check_embeddings(pool, "pool").double()
    check_counts([k], "k")
    if k > len(pool):
        raise ValueError(f"k must lie between 1 and the {len(pool)} points of the pool, got {k}")
    if covered is None:
        nearest = -_distances(pool.mean(dim=0, keepdim=True), pool)[0]
        distance = torch.full_like(nearest, torch.inf)
    else:
        centers = check_embeddings(covered, "covered").double()
        check_one_dimension(pool, centers, "pool and covered")
        nearest = distance = torch.stack([(pool - c).norm(dim=1) for c in centers]).amin(dim=0)
    is_picked = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    picks, radii = [], []
    for _ in range(k):
        pick = nearest.masked_fill(is_picked, -torch.inf).argmax()
        is_picked[pick] = True
        nearest = distance = torch.minimum(distance, (pool - pool[pick]).norm(dim=1))
        picks.append(pick)
        radii.append(distance.max())
    return torch.stack(picks), torch.stack(radii)


def covering_radius(embeddings: Tensor, labels: Tensor) -> float:
    """Returns the greedy k-center radius, averaged over k = 1..n_c and over classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers.

    Returns:
        A distance ≥ 0; the lower it is, the fewer samples represent a class.

    Raises:
        ValueError: invalid embeddings or labels.
    """
    means = [
        float(greedy_k_center(members, len(members))[1].mean())
        for members in embeddings_by_class(embeddings, labels)
    ]
    return sum(means) / len(means)


def _distances(a_nD: Tensor, b_mD: Tensor) -> Tensor:
    """Returns Euclidean distances (n×m) by direct differences."""
    return torch.cdist(a_nD, b_mD, compute_mode="donot_use_mm_for_euclid_dist")


def positivity(derivatives: Tensor, lambdas: Tensor, bins: int = 20) -> Tensor:
    """Returns the share of mixed embeddings that act as positives, by λ (Metrix, Fig. 2).

    A mixed embedding v acts as a positive for anchor a if ∂ℓ̃(a)/∂s(a, v) ≤ 0.

    Args:
        derivatives: L values of ∂ℓ̃/∂s.
        lambdas: L interpolation factors in [0, 1]; 1 is the positive.
        bins: number of equal intervals of λ.

    Returns:
        Shares, 0–1, per interval; NaN for intervals without any λ.

    Raises:
        ValueError: shapes differ, a λ lies outside [0, 1], or `bins` is not a positive integer.
    """
    _check_lambdas(derivatives, lambdas)
    return _share_by_lambda(derivatives <= 0, lambdas, bins)


def predicted_positivity(
    similarities: Tensor,
    lambdas: Tensor,
    *,
    beta: float,
    gamma: float,
    margin: float,
    bins: int = 20,
) -> Tensor:
    """Returns the `positivity` predicted for multi-similarity (Metrix, Eq. 11).

    F_λ(ln(λ/(1−λ))/(β+γ) + m), where the derivative for a single mix changes its sign.

    Args:
        similarities: L values s(a, v) of anchors and mixed embeddings; F_λ is their distribution.
        lambdas: L interpolation factors in [0, 1].
        beta: exponent of the positives, β > 0.
        gamma: exponent of the negatives, γ > 0.
        margin: m.
        bins: number of equal intervals of λ.

    Returns:
        Shares, 0–1, per interval; NaN for intervals without any λ.

    Raises:
        ValueError: shapes differ, a λ lies outside [0, 1], or `bins` is not a positive integer.
    """
    _check_lambdas(similarities, lambdas)
    turning_point = torch.logit(lambdas.double()) / (beta + gamma) + margin
    return _share_by_lambda(similarities.double() <= turning_point, lambdas, bins)


def _check_lambdas(values: Tensor, lambdas: Tensor) -> None:
    if values.shape != lambdas.shape:
        raise ValueError(
            f"lambdas must have shape {tuple(values.shape)} like the values, got"
            f" {tuple(lambdas.shape)}"
        )
    if not bool(((lambdas >= 0) & (lambdas <= 1)).all()):
        raise ValueError("lambdas must lie in [0, 1]")


def _share_by_lambda(event: Tensor, lambdas: Tensor, bins: int) -> Tensor:
    check_counts([bins], "bins")
    number = (lambdas.double() * bins).long().clamp_(max=bins - 1).flatten()
    hits = torch.bincount(number, weights=event.double().flatten(), minlength=bins)
    return hits / torch.bincount(number, minlength=bins)


def items_by_label(labels: Tensor) -> dict[int, Tensor]:
    """Returns label → indices of its items."""
    order = labels.argsort(stable=True)
    values, counts = labels.unique(return_counts=True)
    return dict(zip(values.tolist(), order.split(counts.tolist()), strict=True))


def embeddings_by_class(embeddings: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yields the embeddings of each class, in float64."""
    embeddings = check_embeddings(embeddings, "embeddings")
    check_labels(labels, len(embeddings), "labels")
    for members in items_by_label(labels.to(embeddings.device)).values():
        yield embeddings[members].double()


def cluster_agreement(embeddings: Tensor, labels: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Returns how well k-means clusters agree with the classes, as many clusters as classes.

    NMI is 2·I/(H + H'), AMI the mutual information adjusted for chance (Vinh et al., Information
    Theoretic Measures for Clusterings Comparison, 2010), both by scikit-learn.

    Args:
        embeddings: N×D, on any device.
        labels: N integers.
        names: `nmi`, `ami`, both or none.

    Returns:
        Scores by name; 1 for clusters that are the classes.
    """
    if not names:
        return {}
    from sklearn.cluster import KMeans  # late: it takes a second to import
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    scores = {"nmi": normalized_mutual_info_score, "ami": adjusted_mutual_info_score}
    means = KMeans(int(labels.unique().numel()), n_init=1, random_state=CLUSTERING_SEED)
    points = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
    clusters = means.fit_predict(points.cpu().numpy())
    return {name: float(scores[name](labels.cpu().numpy(), clusters)) for name in names}
