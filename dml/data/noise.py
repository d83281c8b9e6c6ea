"""Wrong labels on purpose: how well a loss bears them (PFML, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dml.data.base import View


@dataclass(frozen=True)
class LabelNoise:
    """What was done to a view, for the summary of a run.

    Attributes:
        rate: share of images asked for.
        changed: images that carry a wrong label now.
        images: images of the view.
        seed: of the choice.
    """

    rate: float
    changed: int
    images: int
    seed: int


def with_label_noise(view: View, rate: float, seed: int) -> tuple[View, LabelNoise]:
    """Gives round(rate · n) images of the view another class of the view, all equally likely.

    Images outside the view keep their labels, so that validation and test stay clean.

    Args:
        view: the images to train on.
        rate: 0 ≤ rate < 1.
        seed: of the choice of images and of their wrong labels.

    Raises:
        ValueError: rate out of range, or a view of one class.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate: {rate} is not within 0..1")
    changed = round(rate * len(view))
    report = LabelNoise(rate, changed, len(view), seed)
    if not changed:
        return view, report
    if view.num_classes < 2:
        raise ValueError("rate: label noise needs a view of at least 2 classes")
    rng = np.random.default_rng([seed, 3])
    chosen = rng.choice(len(view), changed, replace=False)
    step = rng.integers(1, view.num_classes, changed)
    wrong = (view.labels[chosen] + step) % view.num_classes
    labels = view.index.labels.copy()
    labels[view.rows[chosen]] = view.classes[wrong]
    return View(replace(view.index, labels=labels), view.rows), report
