"""Agreement of clusters of embeddings with the classes: NMI and AMI."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

AGREEMENT = ("nmi", "ami")
SEED = 0  # of k-means, so that the same embeddings have the same scores


def cluster_agreement(embeddings: Tensor, labels: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Returns how well k-means clusters agree with the classes, as many clusters as classes.

    NMI is 2·I/(H + H'), AMI the mutual information adjusted for chance (Vinh et al., Information
    Theoretic Measures for Clusterings Comparison, 2010), both by scikit-learn.

    Args:
        embeddings: N×D, on any device.
        labels: N integers.
        names: `nmi`, `ami` or both.

    Returns:
        Scores by name; 1 for clusters that are the classes.
    """
    from sklearn.cluster import KMeans  # late: it takes a second to import
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    scores = {"nmi": normalized_mutual_info_score, "ami": adjusted_mutual_info_score}
    classes = labels.cpu().numpy()
    means = KMeans(int(labels.unique().numel()), n_init=1, random_state=SEED)
    clusters = means.fit_predict(embeddings.float().cpu().numpy())
    return {name: float(scores[name](classes, clusters)) for name in names}
