"""The network from images to embeddings: backbone, pooling, head and normalizer.

Shapes: B images, c channels, h×w maps or t tokens (class token first), D embedding dimensions.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.core.torch_internals import BatchNorm
from dml.models.backbones import Backbone, spec_of

POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "avg": lambda maps_Bchw: maps_Bchw.mean(dim=(2, 3)),
    "max": lambda maps_Bchw: maps_Bchw.amax(dim=(2, 3)),
    "avg+max": lambda maps_Bchw: maps_Bchw.mean(dim=(2, 3)) + maps_Bchw.amax(dim=(2, 3)),
}
TOKEN_POOLINGS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "token": lambda tokens_Btc, prefix: tokens_Btc[:, 0],
    "mean": lambda tokens_Btc, prefix: tokens_Btc[:, prefix:].mean(dim=1),
}
NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda v_BD: F.normalize(v_BD, dim=1),
    "clipped": lambda v_BD: v_BD / v_BD.norm(dim=1, keepdim=True).clamp(min=1),
    "none": lambda v_BD: v_BD,
}


class Embedder(nn.Module):
    """A network that maps images to embeddings.

    `forward` is `embed(features(images))`, and `embed` is `project(pool(features))`; methods that
    mix features (Metrix) call these parts.

    Args:
        backbone: any `Backbone`.
        size: embedding dimensions D; None: the number of channels (384 for ViT-S and DINO).
        pooling: pooling of feature maps: "avg", "max" or "avg+max" (their sum, as in Proxy Anchor);
            or "native" for maps and tokens: all layers before the network's classifier, such as
            ConvNeXt's norm or SigLIP's attention.
        token_pooling: pooling of the tokens of a transformer: "token" (the class token) or "mean"
            (over the patches). Separate from `pooling`, so that a protocol's choice for
            convolutional networks does not affect transformers.
        head: "linear", "linear+relu", "mlp" (a hidden layer with ReLU before the linear one) or
            "none".
        hidden: width of the hidden layer of "mlp".
        layer_norm: add a LayerNorm before the head, as in ProxyNCA++; without parameters, since the
            linear layer after it makes them redundant.
        init: initialization of the head: "default" (PyTorch's), "kaiming_fan_out" (normal; bias 0)
            or "xavier_uniform" (bias 0).
        bias: whether the head has a bias.
        normalize: "l2", "clipped" (v / max(1, ‖v‖): only long vectors are shortened) or "none".
        freeze_batch_norm: keep the BatchNorm statistics of the backbone during training.
        freeze_batch_norm_affine: also keep γ and β.
        batch_norm_momentum: weight of a batch in the running statistics of the backbone's BatchNorm
            layers, 0–1; None keeps the network's value (0.1 in PyTorch).

    Attributes:
        embedding_size: D.
        input: the backbone's `InputSpec`.
        fixed: names of parameters and buffers that no training changes, and that the state leaves
            out; see `lora.py`.

    Raises:
        UserError: two options are incompatible, or the backbone lacks the chosen pooling.
    """

    def __init__(
        self,
        backbone: Backbone,
        size: int | None,
        pooling: Literal["avg", "max", "avg+max", "native"] = "avg",
        token_pooling: Literal["token", "mean"] = "token",
        head: Literal["linear", "linear+relu", "mlp", "none"] = "linear",
        hidden: int = 256,
        layer_norm: bool = False,
        init: Literal["default", "kaiming_fan_out", "xavier_uniform"] = "default",
        bias: bool = True,
        normalize: Literal["l2", "clipped", "none"] = "l2",
        freeze_batch_norm: bool = False,
        freeze_batch_norm_affine: bool = False,
        batch_norm_momentum: float | None = None,
    ) -> None:
        super().__init__()
        channels = _pooled_channels(backbone, pooling, token_pooling)
        self.backbone = backbone
        self.input = spec_of(backbone).input
        self.embedding_size = channels if size is None else size
        if self.embedding_size < 1:
            raise UserError(f"embedder.size={size} must be at least 1, or null for the channels")
        if head == "none" and self.embedding_size != channels:
            raise UserError(
                f"embedder.size={size} needs a head, since the backbone has {channels} channels: "
                "set embedder.head=linear or embedder.size=null"
            )
        self.pooling, self.token_pooling, self.normalize = pooling, token_pooling, normalize
        self.freeze_batch_norm = freeze_batch_norm
        self.fixed: frozenset[str] = frozenset()
        self._frozen: tuple[nn.Module, ...] = ()
        widths = channels, hidden, self.embedding_size
        self.head = _build_head(*widths, head, layer_norm, init, bias)
        for layer in self._batch_norms():
            if freeze_batch_norm_affine:
                layer.requires_grad_(False)
            if batch_norm_momentum is not None:
                layer.momentum = batch_norm_momentum
        self._freeze_statistics()

    def features(self, images: Tensor) -> Tensor:
        """Returns the backbone's features, B×c×h×w, B×t×c or B×c."""
        return self.backbone(images)

    def pool(self, features: Tensor) -> Tensor:
        """Pools features B×c×h×w or B×t×c to B×c; returns vectors B×c unchanged."""
        spec = spec_of(self.backbone)
        if self.pooling == "native" and spec.native_channels:
            return self.backbone.pool_natively(features)
        if spec.kind == "vectors":
            return features
        if spec.kind == "maps":
            return POOLINGS[self.pooling](features)
        return TOKEN_POOLINGS[self.token_pooling](features, spec.prefix_tokens)

    def project(self, pooled_Bc: Tensor) -> Tensor:
        """Returns the head's output B×D, normalized; at least float32, also under autocast."""
        return NORMALIZERS[self.normalize](self._apply_head(pooled_Bc))

    def unnormalized(self, images: Tensor) -> Tensor:
        """Returns the head's output B×D before normalization, from which CCP picks its proxies."""
        return self._apply_head(self.pool(self.features(images)))

    def _apply_head(self, pooled_Bc: Tensor) -> Tensor:
        v_BD = self.head(pooled_Bc)
        # Distances between unit vectors need more than bfloat16's eight bits of precision.
        return v_BD.to(torch.promote_types(v_BD.dtype, torch.float32))

    def embed(self, features: Tensor) -> Tensor:
        """Returns embeddings B×D of features B×c×h×w or B×t×c."""
        return self.project(self.pool(features))

    def forward(self, images: Tensor) -> Tensor:
        """Returns embeddings B×D of images B×3×H×W, prepared as in `input`."""
        return self.embed(self.features(images))

    def train(self, mode: bool = True) -> Embedder:
        """Sets the mode; frozen BatchNorm layers and modules stay in evaluation mode."""
        super().train(mode)
        self._freeze_statistics()
        for module in self._frozen:
            module.eval()
        return self

    def keep_in_evaluation_mode(self, modules: Iterable[nn.Module]) -> None:
        """Keeps modules of the backbone in evaluation mode, also during training."""
        self._frozen = tuple(modules)
        self.train(self.training)

    def _freeze_statistics(self) -> None:
        if self.freeze_batch_norm:
            for layer in self._batch_norms():
                layer.eval()

    def _batch_norms(self) -> Iterator[BatchNorm]:
        return (layer for layer in self.backbone.modules() if isinstance(layer, BatchNorm))


def _pooled_channels(backbone: Backbone, pooling: str, token_pooling: str) -> int:
    """Returns the width of pooled features.

    Raises:
        UserError: the backbone lacks the pooling.
    """
    spec = spec_of(backbone)
    if pooling == "native":
        if spec.native_channels is None and spec.kind != "vectors":
            raise UserError(
                "embedder.pooling=native: the backbone has no pooling; use "
                "embedder.pooling=avg, for tokens embedder.token_pooling=mean"
            )
        return spec.native_channels or spec.channels
    if spec.kind == "tokens" and token_pooling == "token" and not spec.prefix_tokens:
        raise UserError("embedder.token_pooling=token: there is no class token; use mean")
    return spec.channels


def _build_head(
    channels: int, hidden: int, size: int, head: str, layer_norm: bool, init: str, bias: bool
) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    if layer_norm:
        layers["layer_norm"] = nn.LayerNorm(channels, elementwise_affine=False)
    if head == "mlp":
        layers["hidden"], layers["hidden_relu"] = nn.Linear(channels, hidden), nn.ReLU()
        channels = hidden
    if head != "none":
        linear = nn.Linear(channels, size, bias=bias)
        if init == "kaiming_fan_out":
            nn.init.kaiming_normal_(linear.weight, mode="fan_out")
        elif init == "xavier_uniform":
            nn.init.xavier_uniform_(linear.weight)
        if bias and init != "default":
            nn.init.zeros_(linear.bias)
        layers["linear"] = linear
    if head == "linear+relu":
        layers["relu"] = nn.ReLU()
    return nn.Sequential(layers)


def compile_backbone(embedder: Embedder, choice: bool | str) -> None:
    """Compiles the backbone of a network in place; the compilation runs at the first call.

    Args:
        embedder: the network.
        choice: the option `compile`: True, False, or a mode of torch.compile.
    """
    if choice:
        embedder.backbone.compile(mode=choice if isinstance(choice, str) else None)


def hash_weights(embedder: nn.Module) -> str:
    """Returns a digest of the weights of a network, which files of its embeddings carry."""
    weights = hashlib.sha256()
    for name, value in embedder.state_dict().items():
        weights.update(name.encode() + value.cpu().numpy().tobytes())
    return weights.hexdigest()[:16]
