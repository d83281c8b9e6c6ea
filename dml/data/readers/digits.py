"""Handwritten digits of scikit-learn, a stand-in: 0–4 for training, 5–9 are unseen classes."""

from __future__ import annotations

import numpy as np

from dml.data.image_index import ImageIndex

TRAIN_IMAGES = 901


def read_digits() -> ImageIndex:
    """Returns the index of 1,797 digits (8×8, 17 grey levels) as RGB: 901 train, 896 test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    return ImageIndex(
        name="digits",
        images=np.repeat(grey[..., None], 3, axis=3),
        labels=labels,
        roles=np.where(labels < 5, "train", "test"),
        stand_in=True,
    )
