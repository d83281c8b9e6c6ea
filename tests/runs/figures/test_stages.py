"""The picture of a run's stages."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dml.runs.figures.stages import stage_curve


def test_stage_curve_of_a_history(tmp_path):
    rows = [{"step": 0.0, "map_at_r": 0.1}] + [
        {"step": s, "map_at_r": m, "stage": g, "radius_before": 1 - g / 4, "radius_after": 0.2}
        for s, m, g in ((5.0, 0.2, 0.0), (10.0, 0.3, 0.0), (15.0, 0.25, 1.0))
    ]
    stage_curve(rows, "map_at_r", "c2 on glyphs", tmp_path / "stages.png")
    assert np.asarray(Image.open(tmp_path / "stages.png")).std() > 1


@pytest.mark.pictures
def test_only_a_run_with_stages_has_the_picture(run_tiny, monkeypatch):
    # pictures of the test images take longer than all the rest
    monkeypatch.setattr("dml.runs.figures.run_figures._draw_test_images", lambda *more: None)
    few = ("data.batch_size=64", "protocol.steps_per_epoch=2")
    _, folder = run_tiny("method=ccp", "loss=c1", "method.pool_size=3", *few)
    assert (folder / "figures" / "stages.png").exists()
    _, folder = run_tiny("loss=c1", *few)
    assert not (folder / "figures" / "stages.png").exists()
