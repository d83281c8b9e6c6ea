"""timm's records of pretrained weights (`pretrained_cfg`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from dml.core.errors import ConfigError, first_line, nearest
from dml.core.hub import find_hub_file

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
        from timm.models._hub import load_model_config_from_path

        try:
            config, _, _ = load_model_config_from_path(find_folder(model))
        except Exception as error:  # of timm, huggingface_hub or its transport
            reason = first_line(error)
            raise ConfigError([f"backbone.model={model} cannot be read: {reason}"]) from error
        config |= {"file": None, "source": None, "hf_hub_id": model.removeprefix(HUB)}
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


def find_folder(model: str) -> Path:
    """Returns the folder of a network of the hub in the hub's cache; its weights may lack.

    Args:
        model: "hf-hub:user/name".

    Raises:
        HubError: the hub does not have the network, or does not answer.
    """
    return find_hub_file(model.removeprefix(HUB), ["config.json"]).parent
