"""Proxies among two-dimensional embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dml.data.readers.digits import read_digits
from studies.proxy_figure import OVERRIDES, SAMPLES, SampleConstrained, draw_proxy_figure

FEW = ("protocol.steps_per_epoch=2", "protocol.epochs=4", "method.stage_patience=1")


def test_a_panel_at_the_end_of_each_stage(composed, tmp_path):
    cfg = composed(*OVERRIDES, *FEW, "device=cpu", "backbone.width=4", "optim.lr=0.02")
    path = tmp_path / "proxies.png"
    panels = draw_proxy_figure(cfg, read_digits(), 3, path)
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


def test_samples_in_place_of_proxies(composed, tmp_path, monkeypatch):
    """Every step embeds the images that the stage has picked, and trains the network by them."""
    steps = []
    forward = SampleConstrained.forward

    def observed(self, embedder, images, labels):
        loss, logs = forward(self, embedder, images, labels)
        assert self._images.shape[0] == len(self.proxies) == 12
        gradients = torch.autograd.grad(loss, list(embedder.parameters()), retain_graph=True)
        assert any(gradient.any() for gradient in gradients)
        steps.append((self._stage, self._images.sum().item(), self.proxies.sum().item()))
        return loss, logs

    monkeypatch.setattr(SampleConstrained, "forward", observed)
    cfg = composed(*OVERRIDES, *SAMPLES, *FEW, "device=cpu", "backbone.width=4", "optim.lr=0.02")
    path = tmp_path / "samples.png"
    draw_proxy_figure(cfg, read_digits(), 3, path)
    assert len({image for stage, image, _ in steps if stage == 0}) == 1
    assert len({proxy for stage, _, proxy in steps if stage == 0}) > 1
