"""The plateau schedule of ccp's conventional protocol against that of Keras, on four score curves.

`keras_plateau.json` holds what `keras.callbacks.ReduceLROnPlateau` (3.15.1; mode max, factor 0.5,
min_delta 1e-3, cooldown 2, min_lr 1e-6) did: the evaluations, from 0, at which it cut the rate.
"""

import json
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

CURVES = json.loads(Path(__file__).with_name("keras_plateau.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve['data']}-{curve['drops']}")
def test_rate_drops_where_keras_drops_it(composed, curve):
    cfg = composed("protocol=conventional", "method=ccp", "loss=c2", f"data={curve['data']}")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-5)
    schedule = instantiate(cfg.optim.schedule, optimizer=optimizer)
    drops = []
    for evaluation, score in enumerate(curve["scores"]):
        before = optimizer.param_groups[0]["lr"]
        schedule.step(score)
        if optimizer.param_groups[0]["lr"] < before:
            drops.append(evaluation)
    assert drops == curve["drops"]
