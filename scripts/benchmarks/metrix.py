"""Feature mixup over all pairs of a batch: time and memory of a step, compared with other forms.

    python scripts/benchmark.py metrix                    # from given maps, on any machine
    python scripts/benchmark.py metrix --network --device cuda

A batch of 20 classes × 5 images has 9,500 positive–negative pairs; mixed, their ResNet-50 maps
(2048×7×7) take 3.8 GB. `direct` computes them, `metrix` does not; `clean` is the loss alone.
A step is forward and backward of pooling, head and loss, from given maps; with `--network` it
starts from 224×224 images, as in training, and the direct form is left out.

Times are medians of interleaved rounds in one process; memory is what one step adds to the peak of
a fresh process that holds network and batch (on a GPU: to the allocator's peak).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dml.cli.parser import Parser, whole_number
from dml.methods.metrix import Metrix
from dml.methods.metrix.mixed_pooling import mix
from dml.methods.metrix.mixing_pairs import MixingPairs
from dml.methods.plain import Plain
from dml.models.backbones import Backbone, InputSpec
from dml.models.embedder import Embedder

from ._measure import DEVICES, Step, added_peak, in_fresh_process, machine, median_times

IMAGES_PER_CLASS, CHANNELS, SIDE, DIMENSIONS = 5, 2048, 7, 512


class GivenMaps(Backbone):
    """A backbone whose images are maps already."""

    kind = "maps"
    input = InputSpec(size=None)
    channels = CHANNELS

    def forward(self, images: Tensor) -> Tensor:
        """Returns the maps unchanged."""
        return images


class DirectMetrix(Metrix):
    """Metrix that computes every mixed map."""

    def embed_mixed(
        self,
        embedder: nn.Module,
        mix_type: str,
        given: Tensor,
        pairs: MixingPairs,
        lambda_V: Tensor,
    ) -> Tensor | None:
        """See `Metrix.embed_mixed`; feature mixup only."""
        return embedder.embed(mix(given, pairs.first, pairs.second, lambda_V))  # type: ignore[operator]


@dataclass(frozen=True)
class Setting:
    """The measured step, from the command line."""

    classes: int
    pooling: Any  # avg | max | avg+max
    network: bool
    device: str

    @property
    def images(self) -> int:
        """Images in a batch."""
        return self.classes * IMAGES_PER_CLASS

    @property
    def pairs(self) -> int:
        """Positive–negative pairs of different images, in both orders."""
        return self.images * (self.images - IMAGES_PER_CLASS)

    def step(self, kind: str) -> Step:
        """Returns one forward and backward pass of `clean`, `metrix` or `direct`."""
        from pytorch_metric_learning.losses import MultiSimilarityLoss

        torch.manual_seed(0)
        embedder = Embedder(self._backbone(), DIMENSIONS, pooling=self.pooling).to(self.device)
        loss = MultiSimilarityLoss(18, 75, 0.77)
        method: nn.Module = Plain(loss)
        if kind != "clean":
            cls = Metrix if kind == "metrix" else DirectMetrix
            method = cls(loss, types=["feature"], pairs=["pos_neg"])
        shape = (3, 224, 224) if self.network else (CHANNELS, SIDE, SIDE)
        images = torch.randn(self.images, *shape, device=self.device)
        if not self.network:
            images = images.relu_().requires_grad_()  # as maps are
        labels = torch.arange(self.classes, device=self.device).repeat(IMAGES_PER_CLASS)

        def step() -> None:
            images.grad = None
            embedder.zero_grad()
            method(embedder, images, labels)[0].backward()
            if self.device == "cuda":
                torch.cuda.synchronize()

        return step

    def _backbone(self) -> Backbone:
        if not self.network:
            return GivenMaps()
        from dml.models.backbones import TimmBackbone

        return TimmBackbone("resnet50.tv_in1k", weights="none")


def peak_memory(setting: Setting, kind: str) -> float:
    """Returns the MB that one step adds to the peak of this process."""
    Setting(3, setting.pooling, False, setting.device).step(kind)()  # loads kernels and libraries
    return added_peak(setting.step(kind), setting.device)


def main(argv: list[str]) -> None:
    """Measures and prints a line for each form."""
    parser = Parser(__doc__, program="benchmark.py metrix")
    parser.add_argument(
        "--classes", type=whole_number(2), default=20, help="of 5 images each (default 20)"
    )
    parser.add_argument("--pooling", choices=["avg", "max", "avg+max"], default="avg+max")
    parser.add_argument("--network", action="store_true", help="start from images, with ResNet-50")
    parser.add_argument(
        "--rounds", type=whole_number(1), default=5, help="timed rounds (default 5)"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    options = parser.parse_args(argv)
    setting = Setting(options.classes, options.pooling, options.network, options.device)
    kinds = ["clean", "metrix", *([] if options.network else ["direct"])]

    print(
        f"# {machine(setting.device)}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, float32, {options.rounds} rounds"
    )
    network = "with network" if setting.network else "without network"
    print(
        f"# B {setting.images}, {setting.pairs} pairs, {CHANNELS}x{SIDE}x{SIDE}, "
        f"pooling {setting.pooling}, {network}"
    )
    memory = {kind: in_fresh_process(peak_memory, setting, kind) for kind in kinds}
    times = median_times({kind: setting.step(kind) for kind in kinds}, options.rounds)
    for kind in kinds:
        used = f"{memory[kind]:9.0f} MB  {memory[kind] - memory['clean']:+9.0f} MB"
        ratio = times[kind] / times["clean"]
        print(f"{kind:7s} {times[kind]:10.1f} ms  {ratio:6.2f}x clean  {used}", flush=True)
