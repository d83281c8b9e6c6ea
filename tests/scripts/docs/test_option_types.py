"""Types of the typed config, in words."""

import pytest

from dml.config.schema import DataConfig, EvaluateConfig, OptimConfig, TransformConfig
from scripts.docs.option_types import describe_option, list_fields


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (DataConfig, "label_noise", "number ≥ 0, < 1"),
        (DataConfig, "sampler", "random | class_stream | balanced"),
        (DataConfig, "images_per_class", "integer ≥ 1, ≤ 1000000 or null"),
        (TransformConfig, "scale", "list of numbers"),
        (OptimConfig, "_target_", "text"),
        (OptimConfig, "clip_norm", "number > 0 or null"),
        (EvaluateConfig, "save", "float16 | float32 or null"),
        (EvaluateConfig, "recall_at", "list of integer ≥ 1 or null"),
        (EvaluateConfig, "optim", ""),
    ],
)
def test_types_and_limits(model, name, words):
    assert describe_option(list_fields(model)[name]) == words
