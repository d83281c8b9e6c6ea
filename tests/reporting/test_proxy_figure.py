"""Pictures of ccp: the stages of a run, and proxies among two-dimensional embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dml.config.check import check
from dml.config.identity import identity
from dml.config.schema import Config
from dml.data.digits import read_digits
from dml.reporting.proxy_figure import OVERRIDES, demonstrate
from dml.runs.figures.stages import stage_curve

FEW = ("protocol.steps_per_epoch=2", "protocol.epochs=4", "method.stage_patience=1")


def test_stage_curve_of_a_history(tmp_path):
    rows = [{"step": 0.0, "map_at_r": 0.1}] + [
        {"step": s, "map_at_r": m, "stage": g, "radius_before": 1 - g / 4, "radius_after": 0.2}
        for s, m, g in ((5.0, 0.2, 0.0), (10.0, 0.3, 0.0), (15.0, 0.25, 1.0))
    ]
    stage_curve(rows, "map_at_r", "c2 on glyphs", tmp_path / "stages.png")
    assert np.asarray(Image.open(tmp_path / "stages.png")).std() > 1


@pytest.mark.pictures
def test_a_run_with_stages_has_the_picture_and_others_have_not(run_tiny):
    few = ("data.batch_size=64", "protocol.steps_per_epoch=2")
    _, folder = run_tiny("method=ccp", "loss=c1", "method.pool_size=3", *few)
    assert (folder / "figures" / "stages.png").exists()
    _, folder = run_tiny("loss=c1", *few)
    assert not (folder / "figures" / "stages.png").exists()


def test_demonstration_draws_proxies_at_the_end_of_each_stage(composed, tmp_path):
    cfg = composed(*OVERRIDES, *FEW, "device=cpu", "backbone.width=4", "optim.lr=0.02")
    path = tmp_path / "proxies.png"
    panels = demonstrate(check(cfg, Config), identity(cfg), read_digits(), 3, path)
    assert path.exists()
    assert panels
    for panel in panels:
        assert panel.embeddings.shape == (len(panel.labels), 2)
        assert sorted(set(panel.labels)) == [0, 1, 2]
        assert panel.converged.shape == panel.proxies.shape == (3, 4, 2)
        assert np.linalg.norm(panel.proxies, axis=2).max() <= 1 + 1e-6
        farthest = [
            np.linalg.norm(panel.embeddings[panel.labels == c, None] - panel.converged[c], axis=2)
            .min(axis=1)
            .max()
            for c in range(3)
        ]
        assert panel.radius == pytest.approx(np.mean(farthest), rel=1e-5)
