"""BatchNorm over a batch that several processes share.

Layers with frozen statistics stay unchanged; all others use mean and variance of the batch of all
processes, as a single process would. On GPUs that is torch's SyncBatchNorm, which requires NCCL;
elsewhere it is the layer below.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dml.core.errors import UserError
from dml.training.collectives import AllReduceSum


class AllReduceBatchNorm(_BatchNorm):
    """BatchNorm of B×c×… over the batches of all processes, on any device."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes; in training mode also updates the running statistics."""
        if not self.training:
            return super().forward(x)
        channels, dims = x.shape[1], [0, *range(2, x.ndim)]
        shape = (1, channels, *[1] * (x.ndim - 2))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count = wide.new_full((1,), x.numel() / channels)
        sums = cast(Tensor, AllReduceSum.apply(torch.cat([wide.sum(dims), count])))
        total = sums[-1].detach()
        mean_c = sums[:-1] / total
        centered = wide - mean_c.view(shape)
        # A second pass, since the mean square minus the squared mean would lose digits.
        variance_c = cast(Tensor, AllReduceSum.apply(centered.square().sum(dims))) / total
        self._update(mean_c.detach(), variance_c.detach() * total / (total - 1))
        y = centered * (variance_c + self.eps).rsqrt().view(shape)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.to(x.dtype)

    @torch.no_grad()
    def _update(self, mean_c: Tensor, variance_c: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = self.momentum
        share = 1 / float(self.num_batches_tracked) if momentum is None else momentum
        self.running_mean.lerp_(mean_c.to(self.running_mean), share)
        self.running_var.lerp_(variance_c.to(self.running_var), share)

    def _check_input_dim(self, x: Tensor) -> None:
        """Accepts any shape."""


def synchronize_batch_norm(network: nn.Module, device: torch.device) -> None:
    """Replaces the BatchNorm layers within `network`; parameters and names stay the same.

    Raises:
        UserError: a layer type that only GPUs can synchronize.
    """
    if device.type == "cuda":
        from timm.layers import convert_sync_batchnorm  # also converts timm's BatchNorm layers

        for name, child in network.named_children():
            network.add_module(name, convert_sync_batchnorm(child))
        return
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            network.add_module(name, _convert(child))
        synchronize_batch_norm(child, device)


def _convert(layer: _BatchNorm) -> AllReduceBatchNorm:
    if type(layer) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        raise UserError(
            f"torchrun: {type(layer).__name__} layers cannot be synchronized between processes "
            f"without GPUs; set embedder.freeze_batch_norm=true"
        )
    new = AllReduceBatchNorm(
        layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats
    )
    new.weight, new.bias = layer.weight, layer.bias
    new.running_mean, new.running_var = layer.running_mean, layer.running_var
    new.num_batches_tracked = layer.num_batches_tracked
    new.training = layer.training
    return new
