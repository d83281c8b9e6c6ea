"""Label noise: a share of wrong labels, to test how robust a loss is (PFML, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dml.data.image_index import Subset


@dataclass(frozen=True)
class LabelNoise:
    """Description of the label noise in a subset, for the summary of a run.

    Attributes:
        rate: requested share of wrong labels.
        changed: number of images with a wrong label.
        images: number of images in the subset.
        seed: seed of the choice.
    """

    rate: float
    changed: int
    images: int
    seed: int


def add_label_noise(subset: Subset, rate: float, seed: int) -> tuple[Subset, LabelNoise]:
    """Assigns round(rate · n) random images of the subset to other classes, all equally likely.

    Images outside the subset keep their labels, so that validation and test stay clean. The
    category of an image is that of the class that it is assigned to.

    Args:
        subset: the images to train on, of at least two classes.
        rate: 0 ≤ rate < 1.
        seed: seed of the choice of images and of their wrong labels.
    """
    changed = round(rate * len(subset))
    report = LabelNoise(rate, changed, len(subset), seed)
    if not changed:
        return subset, report
    rng = np.random.default_rng([seed, 3])
    chosen = rng.choice(len(subset), changed, replace=False)
    step = rng.integers(1, subset.num_classes, changed)
    wrong = (subset.labels[chosen] + step) % subset.num_classes
    labels = subset.index.labels.copy()
    labels[subset.rows[chosen]] = subset.classes[wrong]
    index = replace(subset.index, labels=labels)
    if subset.categories is not None:
        _, first = np.unique(subset.labels, return_index=True)
        categories = np.array(subset.index.categories, dtype=object)
        categories[subset.rows[chosen]] = subset.categories[first[wrong]]
        index = replace(index, categories=categories)
    return Subset(index, subset.rows), report
