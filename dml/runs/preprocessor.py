"""The preparation of an image in the form of transformers' `preprocessor_config.json`.

Its fields are those of transformers' image processors. `background` is ours: the color below
transparent pixels. Photos are turned upright before, as transformers and `dml embed` do.
"""

from __future__ import annotations

from typing import Any

from PIL import Image
from torch import nn

from dml.data.transforms import CentralCrop, ResizeToSquare
from dml.models.backbones import InputSpec

PROCESSOR = "CLIPImageProcessor"  # resizes, crops, scales and normalizes, nothing else


def preprocessor_config(test: nn.Module, spec: InputSpec, background: str) -> dict[str, Any] | None:
    """Returns the fields that describe how test images become the input of a network.

    Args:
        test: of `Transforms`: resize and central crop.
        spec: mean, standard deviation, scale and order of the channels.
        background: color below transparent pixels.

    Returns:
        The fields; None for a transform of the user, which no fields describe.
    """
    shape = _describe_shape(test)
    if shape is None:
        return None
    is_flipped = spec.channel_order == "bgr"
    fields: dict[str, Any] = {}
    if not is_flipped:  # transformers has no class that flips the channels and normalizes them
        fields["image_processor_type"] = PROCESSOR
    return {
        **fields,
        "do_convert_rgb": True,
        "background": background,
        **shape,
        "do_flip_channel_order": is_flipped,
        "do_rescale": True,
        "rescale_factor": spec.scale / 255,
        "do_normalize": True,
        "image_mean": list(spec.mean),
        "image_std": list(spec.std),
    }


def _describe_shape(test: nn.Module) -> dict[str, Any] | None:
    """Returns the fields of resize and crop; None for a transform of the user."""
    if isinstance(test, nn.Sequential):
        if len(test) == 0:  # images keep their size
            return {"do_resize": False, "do_center_crop": False}
        if len(test) == 1:
            test = test[0]
    if isinstance(test, ResizeToSquare):
        height, width = test.size
        return {
            "do_resize": True,
            "size": {"height": height, "width": width},
            "resample": _resample(test.interpolation),
            "do_center_crop": False,
        }
    if isinstance(test, CentralCrop):
        return {
            "do_resize": True,
            "size": {"shortest_edge": test.resized.side},
            "resample": _resample(test.resized.interpolation),
            "do_center_crop": True,
            "crop_size": {"height": test.size, "width": test.size},
        }
    return None


def _resample(interpolation: Any) -> int:
    """Returns Pillow's number of an interpolation."""
    return int(Image.Resampling[interpolation.name])
