"""Names that options can take, each list written once.

The schema checks options against these lists; the code behind an option reads the same list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SAMPLERS = ("random", "class_stream", "balanced")  # data.sampler
AUGMENTATIONS = ("random_resized_crop", "random_affine", "random_crop", "none")
PRECISIONS = ("fp32", "tf32", "bf16")
COMPILE_MODES = ("reduce-overhead",)  # compile, beside true and false; modes of torch.compile
BACKENDS = ("auto", "torch", "faiss")  # evaluation.backend
BATCH_KINDS = ("pair", "classification")  # loss.batch_kind
SCHEDULES = ("none", "cosine", "step")  # optim.schedule
EVALUATION_UNITS = ("epochs", "steps")  # protocol.evaluate_unit
STOPPING_UNITS = ("evaluations", "epochs")  # protocol.stopping.unit
SEARCH_SAMPLERS = ("gp", "tpe", "grid")  # search.sampler
STORED_PRECISIONS = ("float16", "float32")  # save


@dataclass(frozen=True)
class SplitScheme:
    """A value of `protocol.splits`.

    Attributes:
        folds: models trained per repeat.
        training_share: share of the training classes that a model is trained on, 0–1.
        selected_on: the classes on which the best epoch is selected.
    """

    folds: int
    training_share: float
    selected_on: Literal["test", "validation"] = "validation"


SPLITS = {
    "published": SplitScheme(1, 1.0, selected_on="test"),
    "mlrc": SplitScheme(4, 0.75),
    "ccp": SplitScheme(4, 0.75),
    "holdout": SplitScheme(1, 2 / 3),
}
SELECTED_ON = ("test", "validation")  # protocol.selected_on

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
    "positivity": "figure",
}
