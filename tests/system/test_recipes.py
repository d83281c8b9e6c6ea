"""The settings of the papers, and those that their authors' code alone has, as composed."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from dml.config.check import check

FROZEN = "embedder.freeze_batch_norm=true embedder.freeze_batch_norm_affine=true"
TRAINED = FROZEN.replace("true", "false")
CLIPPED_TOGETHER = "optim.clip_norm=10 optim.clip_value=10 optim.clip_loss_parameters=true"
CCP = f"{FROZEN} {CLIPPED_TOGETHER} embedder.init=xavier_uniform embedder.bias=false"
CONVENTIONAL = (
    f"{CCP} transform.size=227 protocol.evaluate_unit=steps optim.schedule.threshold_mode=abs "
    "optim.schedule.threshold=1e-3 optim.schedule.cooldown=1"
)
PATIENCE = (
    "embedder.normalize=clipped protocol.stopping.unit=evaluations "
    "protocol.stopping.min_delta=1e-5 protocol.stopping.patience="
)
STEP = "optim.schedule.step_size"
MOMENTUM = "embedder.batch_norm_momentum"
PROXIES = "loss.proxies_per_class"
FIELD = "loss.alpha=4.0 loss.delta=0.2 loss.scale=energy"

SETTINGS = {
    "protocol=mlrc data=cub loss=contrastive": "data.images_per_class=4 "
    "protocol.stopping.patience=9",
    "protocol=mlrc data=sop": "protocol.evaluate_every=20 protocol.stopping.patience=39",
    "protocol=mlrc_ccp data=sop loss=c2": "protocol.evaluate_every=250 optim.warmup_epochs=0",
    "protocol=mlrc_ccp data=cub loss=c2 method=ccp": f"{PATIENCE}60",
    "protocol=mlrc_ccp data=cars loss=proxy_anchor": f"{CCP} transform.size=227",
    "protocol=mlrc_ccp data=glyphs": TRAINED,
    "protocol=holdout data=cub": CCP,
    "protocol=holdout data=digits": TRAINED,
    "protocol=conventional data=cub method=ccp loss=c2": f"{CONVENTIONAL} {PATIENCE}15 "
    "protocol.evaluate_every=25 optim.schedule.patience=3",
    "protocol=conventional data=sop backbone=resnet50 loss=c2 method=ccp": f"{PATIENCE}10",
    "protocol=conventional data=sop backbone=resnet50 loss=ms": f"{CONVENTIONAL} "
    "protocol.evaluate_every=250 optim.schedule.patience=2",
    "protocol=conventional data=cub backbone=resnet50": "data.batch_size=96 "
    "optim.weight_decay=4e-4",
    "protocol=conventional data=inshop": "protocol.stopping.patience=15 optim.schedule.patience=2",
    "protocol=pfml data=cub": "data.batch_size=180 optim.weight_decay=5e-4 optim.warmup_epochs=1",
    "protocol=pfml data=cub loss=pfml": f"{PROXIES}=15 {FIELD}",
    "protocol=pfml data=sop loss=pfml": f"{PROXIES}=2 {FIELD}",
    "protocol=pfml data=sop backbone=resnet50": f"{MOMENTUM}=null",
    "protocol=pfml data=sop backbone=vit_s16": "optim.lr=1e-5 optim.loss_lr=1e-2 "
    "optim.warmup_epochs=0",
    "data=glyphs loss=pfml": f"{PROXIES}=2 loss.alpha=0.0 loss.delta=0.3",
    "protocol=mlrc data=inshop loss=cpml": f"{PROXIES}=2",
    "protocol=traditional data=cars loss=pfml": f"{PROXIES}=15 {FIELD}",
    "protocol=validation data=emoji loss=pfml": f"{PROXIES}=2 {FIELD}",
    "protocol=metrix data=cub backbone=resnet50": "embedder.init=kaiming_fan_out "
    "embedder.bias=true",
    "protocol=metrix data=sop": "optim.lr=3e-5 data.images_per_class=5 optim.schedule.gamma=0.25",
    "protocol=metrix data=inshop loss=ms": "optim.lr=1e-4 data.images_per_class=5",
    "protocol=traditional data=cars": f"{STEP}=20 optim.schedule.gamma=0.5",
    "protocol=traditional data=sop": f"optim.lr=6e-4 optim.schedule.gamma=0.25 {MOMENTUM}=0.9 "
    "embedder.freeze_batch_norm=false",
    "protocol=traditional data=cub": f"{MOMENTUM}=null embedder.freeze_batch_norm=true",
    "data=folder": "protocol.name=validation protocol.selected_on=validation "
    "embedder.freeze_batch_norm=true",
    "data=folder protocol=traditional": "protocol.selected_on=test",
    "data=cub": "protocol.name=traditional transform.test_resize=auto",
    "data=glyphs protocol=validation": "embedder.freeze_batch_norm=false",
}


@pytest.mark.parametrize("words", SETTINGS)
def test_composed_settings(composed, words):
    cfg = composed(*words.split())
    check(cfg)
    options = OverridesParser.create().parse_overrides(SETTINGS[words].split())
    expected = {option.key_or_group: option.value() for option in options}
    assert {name: OmegaConf.select(cfg, name) for name in expected} == expected
