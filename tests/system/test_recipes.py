"""The settings that the authors' code has and their papers leave open, as composed."""

import pytest
from omegaconf import OmegaConf

BATCH_NORM_FROZEN = {"embedder.freeze_batch_norm": True, "embedder.freeze_batch_norm_affine": True}
CLIPPED_TOGETHER = {
    "optim.clip_norm": 10,
    "optim.clip_value": 10,
    "optim.clip_loss_parameters": True,
}
GLOROT = {"embedder.init": "xavier_uniform", "embedder.bias": False}
CONVENTIONAL = {
    **BATCH_NORM_FROZEN,
    **CLIPPED_TOGETHER,
    **GLOROT,
    "transform.size": 227,
    "protocol.evaluate_unit": "steps",
    "optim.schedule.threshold_mode": "abs",
    "optim.schedule.threshold": 1e-3,
    "optim.schedule.cooldown": 1,
}
PROXIES = "loss.proxies_per_class"
FIELD = {"loss.alpha": 4.0, "loss.delta": 0.2, "loss.scale": "energy"}
MOMENTUM = "embedder.batch_norm_momentum"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "protocol=conventional data=cub method=ccp loss=c2",
            {**CONVENTIONAL, "protocol.evaluate_every": 25, "optim.schedule.patience": 3},
        ),
        (
            "protocol=conventional data=sop backbone=resnet50 loss=ms",
            {**CONVENTIONAL, "protocol.evaluate_every": 250, "optim.schedule.patience": 2},
        ),
        (
            "protocol=mlrc_ccp data=cars loss=proxy_anchor",
            {**BATCH_NORM_FROZEN, **CLIPPED_TOGETHER, **GLOROT, "transform.size": 227},
        ),
        ("protocol=holdout data=cub", {**BATCH_NORM_FROZEN, **CLIPPED_TOGETHER, **GLOROT}),
        (
            "protocol=mlrc_ccp data=glyphs",
            {"embedder.freeze_batch_norm": False, "embedder.freeze_batch_norm_affine": False},
        ),
        (
            "protocol=holdout data=digits",
            {"embedder.freeze_batch_norm": False, "embedder.freeze_batch_norm_affine": False},
        ),
        (
            "protocol=metrix data=cub backbone=resnet50",
            {"embedder.init": "kaiming_fan_out", "embedder.bias": True},
        ),
        ("protocol=traditional data=sop", {MOMENTUM: 0.9, "embedder.freeze_batch_norm": False}),
        ("protocol=traditional data=cub", {MOMENTUM: None, "embedder.freeze_batch_norm": True}),
        ("protocol=pfml data=sop backbone=resnet50", {MOMENTUM: None}),
        ("protocol=pfml data=cub loss=pfml", {PROXIES: 15, **FIELD}),
        ("data=glyphs loss=pfml", {PROXIES: 2, "loss.alpha": 0.0, "loss.delta": 0.3}),
        ("protocol=pfml data=sop loss=pfml", {PROXIES: 2, **FIELD}),
        ("protocol=mlrc data=inshop loss=cpml", {PROXIES: 2}),
        ("protocol=traditional data=cars loss=pfml", {PROXIES: 15, **FIELD}),
        ("protocol=validation data=emoji loss=pfml", {PROXIES: 2, **FIELD}),
        (
            "data=folder",
            {
                "protocol.name": "validation",
                "protocol.selected_on": "validation",
                "embedder.freeze_batch_norm": True,
            },
        ),
        ("data=folder protocol=traditional", {"protocol.selected_on": "test"}),
        ("data=cub", {"protocol.name": "traditional", "transform.test_resize": "auto"}),
        ("data=glyphs protocol=validation", {"embedder.freeze_batch_norm": False}),
    ],
)
def test_composed_settings(composed, overrides, expected):
    cfg = composed(*overrides.split())
    assert {name: OmegaConf.select(cfg, name) for name in expected} == expected
