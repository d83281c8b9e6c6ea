import pytest
import torch

from dml.core.errors import UserError

SHORT = ("protocol.steps_per_epoch=3", "data.batch_size=60", "loss=mfcont")


@pytest.fixture
def score(run_tiny):
    def scored(*overrides):
        summary, _ = run_tiny("overwrite=true", *SHORT, *overrides)
        return summary["metrics"]["map_at_r"]["mean"]

    return scored


def test_convolutions_are_float32_unless_asked_otherwise(score, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    score()
    assert not torch.backends.cudnn.allow_tf32
    with pytest.raises(UserError, match="precision: tf32 is a format of GPUs"):
        score("precision=tf32")
