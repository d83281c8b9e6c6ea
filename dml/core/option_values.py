"""Valid values of options.

The schema checks options against these lists; the code behind an option uses the same list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Sampler = Literal["random", "class_stream", "balanced", "category"]  # data.sampler
Augmentation = Literal["random_resized_crop", "random_affine", "random_crop", "none"]
MoreAugmentation = Literal["color_jitter", "rand_augment", "trivial_augment", "random_erasing"]
RetrievalBackend = Literal["auto", "torch", "faiss"]  # evaluation.backend
BACKENDS = get_args(RetrievalBackend)
MAX_IMAGE_PIXELS = 178_956_970  # default of data.max_pixels; Pillow refuses larger images


@dataclass(frozen=True)
class SplitScheme:
    """Properties of a value of `protocol.splits`.

    Attributes:
        folds: models trained per repeat.
        training_share: share of the training classes on which a model is trained, 0–1.
        selected_on: the classes on which the best epoch is selected; nothing: the last one counts.
        seen_classes: whether the classes of the test are those of the training.
    """

    folds: int
    training_share: float
    selected_on: Literal["test", "validation", "nothing"] = "validation"
    seen_classes: bool = False


SPLITS = {
    "published": SplitScheme(1, 1.0, selected_on="test"),
    "mlrc": SplitScheme(4, 0.75),
    "ccp": SplitScheme(4, 0.75),
    "holdout": SplitScheme(1, 2 / 3),
    "all": SplitScheme(1, 1.0, selected_on="nothing"),
    "closed_set": SplitScheme(1, 0.6, seen_classes=True),
}
EMBEDDING_FILES = (".npz", ".parquet")  # endings of files of embeddings
SEEN_CLASSES = "classes seen in training"  # mark of scores in tables


def has_seen_classes(splits: str | None) -> bool:
    """Returns whether a value of `protocol.splits` tests the classes that it trains on."""
    return splits in SPLITS and SPLITS[splits].seen_classes


def describe_classes(splits: str) -> str:
    """Returns what the test classes of a value of `protocol.splits` are, in words."""
    return SEEN_CLASSES if has_seen_classes(splits) else "unseen classes"


SECTIONS = ("validation", "selection")  # names of the scores that select the best epoch


def selection_section(selected_on: str) -> str:
    """Returns the name of the scores that select the best epoch, in files and trackers.

    Only scores of validation classes are called `validation`; where a protocol selects on the test
    classes they are `selection`.
    """
    return "validation" if selected_on == "validation" else "selection"


# evaluation.measures, by when each is computed: at every evaluation, for the best network, or as a
# figure of the best network.
EXTRA_METRICS = {
    "regularizer": "evaluation",
    "w2": "evaluation",
    "covering_radius": "evaluation",
    "inter_class_distance": "evaluation",
    "alignment": "best",
    "uniformity": "best",
    "utilization": "best",
    "nmi": "best",
    "ami": "best",
    "mrr_at_r": "best",
    "fnmr_at_fmr_0.01": "best",
    "fnmr_at_fmr_0.001": "best",
    "positivity": "figure",
}
