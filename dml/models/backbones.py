"""Interface of backbones; networks of timm and of users behind it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from dml.core.errors import ConfigError, first_line
from dml.core.timm_records import find_record
from dml.models.timm_networks import load_network, set_checkpointing
from dml.models.timm_weights import describe_timm_weights, find_timm_weights
from dml.models.weights import WeightFile, describe_option, find_option

T = TypeVar("T")
D = TypeVar("D")
SPEC = "dml_spec"  # attribute of a network without the base class
KINDS: dict[int, Literal["maps", "tokens", "vectors"]] = {2: "vectors", 3: "tokens", 4: "maps"}


@dataclass(frozen=True)
class InputSpec:
    """Input of a network: `(image * scale - mean) / std` for images in [0, 1].

    Attributes:
        size: height and width in pixels; None keeps the size of the dataset's images.
        mean: mean of each channel, in the network's channel order.
        std: standard deviation of each channel, in the same order.
        channel_order: "rgb", or "bgr" for networks converted from Caffe.
        scale: 1.0 for networks trained on values in [0, 1], 255.0 for those trained on [0, 255].
        interpolation: "bilinear" or "bicubic", for every resize.
        crop_share: side of the central crop of a test image, relative to the shorter side of the
            resized image, 0–1; None resizes whole images to a square.
    """

    size: int | None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    channel_order: Literal["rgb", "bgr"] = "rgb"
    scale: float = 1.0
    interpolation: str = "bilinear"
    crop_share: float | None = 224 / 256


IMAGENET = InputSpec(size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Backbone(nn.Module):
    """Network from images (B×3×H×W, prepared as in `input`) to features, without pooling.

    A custom network needs neither this base class nor the attributes: `complete` finds them.

    Attributes:
        channels: c of the features.
        kind: output of `forward`: "maps" B×c×h×w, "tokens" B×tokens×c, or "vectors" B×c, which
            need no pooling.
        input: the input for which the weights were trained.
        prefix_tokens: number of tokens before the patch tokens (class token first).
        native_channels: c of `pool_natively`; None if the network has no native pooling.
    """

    channels: int
    kind: Literal["maps", "tokens", "vectors"]
    input: InputSpec
    prefix_tokens: int = 0
    native_channels: int | None = None

    @classmethod
    def fetch_weights(cls, **options: Any) -> None:
        """Downloads the files that the constructor needs, so that it makes no request.

        A run calls it before it reads images: what fails here has cost no hour.

        Args:
            options: arguments of the constructor.

        Raises:
            UserError: a file does not exist, or no address has it.
        """

    @classmethod
    def describe_weights(cls, **options: Any) -> WeightFile | None:
        """Returns the file that `fetch_weights` downloads, without a request; None: no file.

        Args:
            options: arguments of the constructor.
        """
        return None

    def pool_natively(self, features: Tensor) -> Tensor:
        """Pools features B×c×h×w or B×tokens×c to B×c, as before the network's classifier."""
        raise NotImplementedError


@dataclass(frozen=True)
class BackboneSpec:
    """What a `Backbone` says of itself, of a network without this base class.

    Attributes:
        channels, kind, input, prefix_tokens, native_channels: see `Backbone`.
    """

    channels: int
    kind: Literal["maps", "tokens", "vectors"]
    input: InputSpec
    prefix_tokens: int
    native_channels: int | None


def spec_of(backbone: nn.Module) -> BackboneSpec | Backbone:
    """Returns what has the attributes of a `Backbone`: the network itself, or what was found."""
    return cast(BackboneSpec | Backbone, getattr(backbone, SPEC, backbone))


def complete(network: nn.Module, size: int | None = None) -> Backbone:
    """Finds what a `Backbone` says of itself, and returns the network.

    It is kept where `spec_of` finds it. Of a network without this base class no attribute is
    changed, since `kind` or `channels` may mean something else there: `kind` and `channels` are
    found by a run on an image of zeros, in evaluation mode without gradients; `input` is that of
    the network if it is an `InputSpec`, by default 224 pixels with ImageNet's mean and standard
    deviation.

    Args:
        network: maps B×3×H×W to B×c, B×c×h×w or B×tokens×c.
        size: side of the image in pixels; None: the size in `input`.

    Raises:
        ConfigError: the network fails on the image, or returns another shape or type.
    """
    images = _attribute(network, "input", InputSpec, IMAGENET)
    side = size or images.size or 224
    is_known = isinstance(network, Backbone) and _has_form(network)
    if is_known and images.size in (None, side):
        return cast(Backbone, network)
    features = _run_on_zeros(network, side)
    kind, channels = KINDS[features.ndim], features.shape[1 if features.ndim == 4 else -1]
    if isinstance(network, Backbone):
        if not is_known:
            network.kind, network.channels = kind, channels
        return network
    native = None
    if callable(getattr(network, "pool_natively", None)):
        native = _attribute(network, "native_channels", int, None)
    tokens = _attribute(network, "prefix_tokens", int, 0)
    setattr(network, SPEC, BackboneSpec(channels, kind, images, tokens, native))
    return cast(Backbone, network)


def _has_form(network: nn.Module) -> bool:
    """Returns whether a network says what its features are."""
    return hasattr(network, "kind") and hasattr(network, "channels")


def _attribute(network: nn.Module, name: str, kind: type[T], default: D) -> T | D:
    """Returns an attribute of a network; the default if it has none or one of another type."""
    value = getattr(network, name, default)
    return value if isinstance(value, kind) else default


def _run_on_zeros(network: nn.Module, size: int) -> Tensor:
    name, training = type(network).__name__, network.training
    advice = (
        "; another size is set with transform.size, that of timm's networks with "
        "backbone.input_size"
    )
    try:
        with torch.no_grad():
            features = network.eval()(torch.zeros(1, 3, size, size))
        advice = ""  # what is wrong with features does not depend on the size
        _check_features(features, 1)
    except Exception as error:  # of any class: the network may be the user's
        problem = f"fails on an image of 3x{size}x{size}: {first_line(error)}{advice}"
        raise ConfigError([f"backbone: {name} {problem}"]) from error
    finally:
        network.train(training)
    return features


def check_training_mode(network: Backbone, size: int | None = None, trained: bool = True) -> None:
    """Runs a copy of a user's network in training mode, in which it may return something else.

    A network that cannot be copied is not tried. The state of random numbers stays as it is.

    Args:
        network: on the CPU, as `complete` returns it.
        size: side of the training images; None: that of its `InputSpec`.
        trained: whether its weights are trained, so that its features need gradients.

    Raises:
        ConfigError: the network fails, returns another form than in evaluation mode, or features
            without a gradient.
    """
    if isinstance(network, Backbone):
        return
    try:
        tried = copy.deepcopy(network)
    except Exception:  # of any class: the network may hold anything
        return
    side = size or spec_of(network).input.size or 224
    images = torch.zeros(2, 3, side, side)
    try:
        with torch.random.fork_rng(devices=[]):
            with torch.no_grad():
                evaluated = tried.eval()(images)
            features = tried.train()(images)
        _check_features(features, 2)
        if features.shape != evaluated.shape:
            raise TypeError(f"it returns {list(features.shape)}, but {list(evaluated.shape)} else")
        if trained:
            _check_gradient(features, tried)
    except Exception as error:  # of any class: the network may be the user's
        name = type(network).__name__
        raise ConfigError(
            [f"backbone: {name} fails on 2 images in training mode: {first_line(error)}"]
        ) from error


def _check_gradient(features: Tensor, network: nn.Module) -> None:
    """Raises TypeError if the features of a network with weights have no gradient."""
    has_weights = any(parameter.requires_grad for parameter in network.parameters())
    if has_weights and not features.requires_grad:
        raise TypeError(
            "its features have no gradient, so that its weights would not be trained; is there "
            "a detach() or no_grad()? backbone.train=none trains the head alone"
        )


def _check_features(features: Any, images: int) -> None:
    """Raises TypeError unless a network returned features of its images, in float32."""
    is_tensor = isinstance(features, Tensor)
    if not is_tensor or features.ndim not in KINDS or len(features) != images:
        shape = list(features.shape) if is_tensor else f"a {type(features).__name__}"
        raise TypeError(
            f"it returns {shape}, not {images}xc (vectors), {images}xcxhxw (maps) or "
            f"{images}xtokensxc"
        )
    if features.dtype != torch.float32:
        raise TypeError(f"it returns {features.dtype}, not torch.float32")


class TimmBackbone(Backbone):
    """Features of a timm network: maps B×c×h×w, or all tokens B×t×c after the final norm.

    Args:
        model: timm's name, with or without the tag of the weights: "resnet50.tv_in1k".
        weights: "imagenet" (timm's weights for the tag, or for its default tag), "none", a file or
            an http(s) URL. Files have timm's names or names that timm converts.
        input_size: side of the images in pixels; position embeddings are resized to fit.
        mean, std: see `InputSpec`; None: the values in timm's record of the weights.
        interpolation: "bilinear" or "bicubic".
        crop_share: see `InputSpec`.
        args: further arguments of the network's constructor in timm.
        checkpointing: compute the features of the blocks again in the backward pass, which saves
            memory and takes time; the results are the same.

    Raises:
        ConfigError: timm has no such model, the model or the input size is not supported, or the
            network takes no such argument, or cannot compute its blocks again.
        UserError: the weights cannot be loaded or belong to another network.
    """

    def __init__(
        self,
        model: str,
        weights: str = "imagenet",
        input_size: int = 224,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        interpolation: Literal["bilinear", "bicubic"] = "bilinear",
        crop_share: float | None = 224 / 256,
        args: Mapping[str, Any] = MappingProxyType({}),
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        record = find_record(model)
        self.network = load_network(model, input_size, weights, args)
        if checkpointing:
            set_checkpointing(self.network)
        self.prefix_tokens = getattr(self.network, "num_prefix_tokens", 0)
        self.maps_last = getattr(self.network, "output_fmt", "NCHW") == "NHWC"
        self.input = InputSpec(
            size=input_size,
            mean=tuple(mean or record["mean"]),
            std=tuple(std or record["std"]),
            interpolation=interpolation,
            crop_share=crop_share,
        )
        self.native_channels = getattr(self.network, "head_hidden_size", None)
        complete(self)

    @classmethod
    def fetch_weights(cls, **options: Any) -> None:
        """Downloads the weights, unless they are there; see `Backbone.fetch_weights`."""
        weights = options.get("weights", "imagenet")
        if weights == "imagenet":
            find_timm_weights(options["model"])
        else:
            find_option(weights)

    @classmethod
    def describe_weights(cls, **options: Any) -> WeightFile | None:
        """Returns the file of `fetch_weights`; see `Backbone.describe_weights`."""
        weights = options.get("weights", "imagenet")
        if weights == "imagenet":
            return describe_timm_weights(options["model"])
        return describe_option(weights)

    def forward(self, images: Tensor) -> Tensor:
        """Returns maps B×c×h×w or tokens B×t×c, class token first, of images B×3×H×W."""
        features = self.network.forward_features(images)
        is_last = self.maps_last and features.ndim == 4
        return features.permute(0, 3, 1, 2) if is_last else features

    def pool_natively(self, features: Tensor) -> Tensor:
        """Returns timm's output before the classifier, B×c, for features from `forward`."""
        if self.maps_last and features.ndim == 4:
            features = features.permute(0, 2, 3, 1)
        return self.network.forward_head(features, pre_logits=True)
