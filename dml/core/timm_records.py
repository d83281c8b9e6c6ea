"""timm's records of pretrained weights (`pretrained_cfg`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from dml.core.errors import ConfigError, first_line, nearest

HUB = "hf-hub:"  # prefix of networks on the Hugging Face hub


@cache
def find_record(model: str) -> dict[str, Any]:
    """Returns timm's record of a network's pretrained weights.

    Args:
        model: "resnet50.tv_in1k", "resnet50" for the weights that timm prefers, or
            "hf-hub:user/name" for weights on the Hugging Face hub.

    Raises:
        ConfigError: timm has no such network or tag, or the hub cannot be read.
    """
    import timm  # imported late: it loads torch, which most commands do not need

    if model.startswith(HUB):
        try:
            config, _, _ = timm.models.load_model_config_from_hf(model.removeprefix(HUB))
        except Exception as error:  # of timm, huggingface_hub or its transport
            reason = first_line(error)
            raise ConfigError([f"backbone.model={model} cannot be read: {reason}"]) from error
        return timm.models.PretrainedCfg(**config).to_dict()
    try:
        record = timm.get_pretrained_cfg(model)
    except RuntimeError:  # the network is known, the tag is not
        record = None
    if record is None:
        known = [*timm.list_models(pretrained=True), *timm.list_models()]
        hint = f"; of the hub: backbone.model={HUB}{model}" if "/" in model else ""
        raise ConfigError(
            [f"backbone.model={model} is not a network of timm{hint or nearest(model, known)}"]
        )
    return record.to_dict()
