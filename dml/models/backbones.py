"""ResNet, ViT, DINO and whatever else timm knows, without classifier and pooling."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from dml.core.errors import ConfigError, nearest
from dml.models.base import Backbone, InputSpec
from dml.models.download import HUB_FILE, promised_hash
from dml.models.weights import Published, load_weights


class TimmBackbone(Backbone):
    """Features of a timm network: maps B×c×h×w, or all tokens B×t×c after the final norm.

    Mean and standard deviation come from timm's record of the weights.

    Args:
        model: timm's name with the tag of the weights, such as "resnet50.tv_in1k".
        weights: "imagenet" (those of the tag), "none", a file or an http(s) URL.
        input_size: side of the images in pixels; position embeddings are resized to fit.

    Raises:
        ConfigError: timm has no such model, or the size does not fit its patches.
        UserError: the weights cannot be had or are another network's.
    """

    def __init__(self, model: str, weights: str = "imagenet", input_size: int = 224) -> None:
        super().__init__()
        record = _record(model)
        self.network = _create(model, input_size, fixed_size=record["fixed_input_size"])
        self.channels = self.network.num_features
        # Swin and its like keep channels last.
        self.channels_last = getattr(self.network, "output_fmt", "NCHW") == "NHWC"
        is_transformer = hasattr(self.network, "num_prefix_tokens")
        self.kind: Literal["maps", "tokens"] = "tokens" if is_transformer else "maps"
        self.prefix_tokens = self.network.num_prefix_tokens if is_transformer else 0
        self.input = InputSpec(
            size=input_size, mean=tuple(record["mean"]), std=tuple(record["std"])
        )
        load_weights(
            self.network,
            weights,
            published_by_timm(model, record),
            classifier=record["classifier"],
            adapt=self._resize_positions,
        )

    def forward(self, images: Tensor) -> Tensor:
        """Maps B×c×h×w or tokens B×t×c, class token first, of images B×3×H×W.

        Raises:
            ConfigError: the network's features are neither.
        """
        features = self.network.forward_features(images)
        if self.channels_last:
            features = features.permute(0, 3, 1, 2)
        shape = tuple(features.shape)
        expected = (shape[0], self.channels) if self.kind == "maps" else (shape[0], shape[1])
        if len(shape) != (4 if self.kind == "maps" else 3) or shape[:2] != expected:
            raise ConfigError(
                [
                    f"backbone.model: the features of this network are {'x'.join(map(str, shape))} "
                    f"for a batch of {shape[0]}; only maps and tokens with a class token can be "
                    f"pooled, choose another"
                ]
            )
        return features

    def _resize_positions(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Weights of another resolution have as many positions as that had patches."""
        if self.kind == "maps" or "pos_embed" not in state:
            return state
        from timm.layers import resample_abs_pos_embed

        patches = state["pos_embed"].shape[1] - self.prefix_tokens
        if patches < 1 or isqrt(patches) ** 2 != patches:
            return state  # another network's, as loading will say
        grid = list(self.network.patch_embed.grid_size)
        resized = resample_abs_pos_embed(
            state["pos_embed"], grid, num_prefix_tokens=self.prefix_tokens
        )
        return {**state, "pos_embed": resized}


def published_by_timm(model: str, record: dict[str, Any]) -> Published | None:
    """Where timm's record says that the weights are; a file that carries its hash comes first."""
    url, hub = record["url"], record["hf_hub_id"]
    if url and promised_hash(url):
        return Published(file=url.rsplit("/", 1)[-1], url=url)
    return Published(file=f"{model}{Path(HUB_FILE).suffix}", hub=hub) if hub else None


def _record(model: str) -> dict[str, Any]:
    """What timm knows of the weights that the tag of `model` names."""
    import timm

    try:
        record = timm.get_pretrained_cfg(model)
    except RuntimeError:  # the network is known, the tag is not
        record = None
    if record is None:
        known = timm.list_models(pretrained=True)
        raise ConfigError(
            [f"backbone.model={model} is no network of timm with weights{nearest(model, known)}"]
        )
    return record.to_dict()


def _create(model: str, input_size: int, fixed_size: bool) -> Any:
    import timm

    if input_size < 1:
        raise ConfigError([f"backbone.input_size: {input_size} must be at least 1"])
    size: dict[str, Any] = {"img_size": input_size} if fixed_size else {}
    network: Any = timm.create_model(model, pretrained=False, num_classes=0, **size)
    patch = network.patch_embed.patch_size[0] if hasattr(network, "patch_embed") else 1
    if input_size % patch:
        raise ConfigError(
            [
                f"backbone.input_size={input_size} must be a multiple of the {patch} pixels "
                f"of {model}'s patches"
            ]
        )
    return network
