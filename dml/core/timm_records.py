"""Records that timm keeps of pretrained weights."""

from __future__ import annotations

from typing import Any

from dml.core.errors import ConfigError, nearest


def find_record(model: str) -> dict[str, Any]:
    """Returns timm's record of the weights that the tag of a network's name stands for.

    Args:
        model: "resnet50.tv_in1k", or "resnet50" for the weights that timm prefers.

    Raises:
        ConfigError: timm has no such network or tag.
    """
    import timm  # late: it loads torch, and most commands do without

    try:
        record = timm.get_pretrained_cfg(model)
    except RuntimeError:  # the network is known, the tag is not
        record = None
    if record is None:
        name, _, tag = model.partition(".")
        if tag and timm.is_model(name):
            tagged = ", ".join(timm.list_pretrained(f"{name}.*")) or "none"
            raise ConfigError([f"backbone.model={model} has no such weights; timm has {tagged}"])
        known = [*timm.list_models(pretrained=True), *timm.list_models()]
        hint = nearest(model, known)
        raise ConfigError([f"backbone.model={model} is not a network of timm{hint}"])
    return record.to_dict()
