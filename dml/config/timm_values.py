"""References of a config to timm's record of a network: `${timm:${.model},input_size}`."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from dml.core.timm_records import find_record


def read_timm_record(model: str, key: str) -> Any:
    """Returns an entry of timm's record of a network's weights.

    Args:
        model: timm's name, with or without a tag.
        key: "input_size" (the shorter side), "mean", "std", "interpolation" or "crop_share" (None
            where timm squeezes whole images to a square).

    Raises:
        ConfigError: timm has no such network or tag.
    """
    record = find_record(model)
    if key == "input_size":
        return min(record["input_size"][1:])
    if key == "crop_share":
        return None if record["crop_mode"] == "squash" else record["crop_pct"]
    value = record[key]
    return list(value) if isinstance(value, tuple) else value


OmegaConf.register_new_resolver("timm", read_timm_record, replace=True)
