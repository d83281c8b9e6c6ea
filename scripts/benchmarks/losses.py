"""Time and memory of losses, forward and backward, compared with other forms of them.

Losses of the papers are compared with their dense forms and with ProxyAnchor, the baselines
(`arcface-11318` …) with pytorch-metric-learning.

    python scripts/benchmark.py losses
    python scripts/benchmark.py losses --cases mfcwms-11318 pfml-22816 --rounds 5

Times are medians of interleaved rounds in one process, and their ratios medians of the ratios in
each round, so that a noisy machine is noisy for all; only the ratios count. Memory is what one step
adds to the peak of a fresh process that already holds the batch and the loss (on a GPU: to the
allocator's peak).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from dml.cli.parser import Parser, whole_number
from dml.losses import (
    C1Loss,
    C2Loss,
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
    PotentialFieldLoss,
    generic,
)
from dml.losses.distances import clip_to_ball
from dml.methods.reference_losses import prepare_for_references

from . import _dense_losses
from ._baselines import Baseline, list_baselines
from ._measure import (
    DEVICES,
    Step,
    added_peak,
    in_fresh_process,
    in_turns,
    machine,
    median_ratio,
    seconds,
)

BATCH, DIMENSIONS = 180, 512


@dataclass(frozen=True)
class Case:
    """A loss at a size.

    `proxies`: per class, for potential fields and for the pair losses of ccp; `collapsed`: all
    charges lie within δ of each other; `dense`: whether the dense form fits into
    the memory of an ordinary machine; `baseline`: the loss of a recipe, with four images per class.
    """

    loss: str
    classes: int
    proxies: int = 0
    collapsed: bool = False
    dense: bool = True
    baseline: bool = False

    def batch(self, device: str) -> tuple[Tensor, Tensor]:
        """Returns embeddings that require a gradient, and labels."""
        torch.manual_seed(0)
        x = torch.randn(BATCH, DIMENSIONS)
        if self.collapsed:
            x = _one_point() + 0.1 * x
        y = torch.randint(0, self.classes, (BATCH,))
        if self.baseline:
            y = torch.randperm(self.classes)[: BATCH // 4].repeat_interleave(4)
        return x.to(device).requires_grad_(), y.to(device)

    def ours(self) -> nn.Module:
        """Returns our implementation with its default hyperparameters."""
        if self.loss == "generic_contrastive":
            return generic.ContrastiveLoss()
        if self.baseline:
            return Baseline(self.loss, self.classes, DIMENSIONS, library=False)
        kinds = {
            "mfcwms": MeanFieldClassWiseMultiSimilarityLoss,
            "mfcont": MeanFieldContrastiveLoss,
            "mfnca": MeanFieldNCALoss,
        }
        if self.loss in kinds:
            return kinds[self.loss](self.classes, DIMENSIONS)
        if self.loss in ("c1", "c2", "ms", "triplet"):
            return AgainstProxies(self.loss, self.classes, self.proxies)
        loss = PotentialFieldLoss(self.classes, DIMENSIONS, self.proxies)
        if self.collapsed:
            loss.proxies.data = _one_point() + 0.1 * torch.randn_like(loss.proxies)
        return loss

    def theirs(self) -> nn.Module:
        """Returns the loss of pytorch-metric-learning."""
        if self.loss == "generic_contrastive":
            from pytorch_metric_learning.losses import ContrastiveLoss

            return ContrastiveLoss(0, 0.5)
        return Baseline(self.loss, self.classes, DIMENSIONS, library=True)

    def implementations(self) -> list[str]:
        """Returns the names of the implementations that this case compares."""
        if self.baseline:
            return ["ours", "library"]
        dense = ["dense"] if self.dense and self.loss in ("mfcwms", "pfml") else []
        return ["ours", *dense, *(["proxy_anchor"] if self.loss.startswith("mf") else [])]

    def step(self, implementation: str, device: str) -> Step:
        """Returns one forward and backward pass, ready to run."""
        x, y = self.batch(device)
        loss = self.theirs() if implementation == "library" else self.ours()
        loss = loss.to(device)
        forward: Callable[[Tensor, Tensor], Tensor] = loss
        if implementation == "proxy_anchor":
            from pytorch_metric_learning.losses import ProxyAnchorLoss

            forward = loss = ProxyAnchorLoss(self.classes, DIMENSIONS).to(device)
        elif isinstance(loss, MeanFieldClassWiseMultiSimilarityLoss) and implementation == "dense":
            forward = partial(
                _dense_losses.mfcwms,
                m_CD=loss.mean_fields,
                alpha=loss.alpha,
                beta=loss.beta,
                delta=loss.delta,
            )
        elif isinstance(loss, PotentialFieldLoss) and implementation == "dense":
            forward = partial(
                _dense_losses.pfml,
                proxies=loss.proxies,
                per_class=self.proxies,
                alpha=loss.alpha,
                delta=loss.delta,
            )

        def step() -> None:
            x.grad = None
            loss.zero_grad()
            forward(x, y).backward()
            if device == "cuda":
                torch.cuda.synchronize()

        return step


class AgainstProxies(nn.Module):
    """A pair loss of ccp between a batch and its proxies, both clipped to the unit ball."""

    def __init__(self, name: str, classes: int, per_class: int) -> None:
        super().__init__()
        from pytorch_metric_learning.losses import MultiSimilarityLoss, TripletMarginLoss

        kinds: dict[str, Callable[[], nn.Module]] = {
            "c1": C1Loss,
            "c2": C2Loss,
            "ms": lambda: MultiSimilarityLoss(2, 40, 0.5),
            "triplet": lambda: TripletMarginLoss(0.0451),
        }
        self.loss = prepare_for_references(kinds[name](), None, DIMENSIONS, "ccp")
        self.clips = isinstance(self.loss, C1Loss | C2Loss)
        self.proxies = nn.Parameter(0.05 * torch.randn(classes * per_class, DIMENSIONS))
        owners = torch.arange(classes).repeat_interleave(per_class)
        self.register_buffer("owners", owners)

    def forward(self, x_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Returns the loss of a batch."""
        references = self.proxies if self.clips else clip_to_ball(self.proxies)
        return self.loss(clip_to_ball(x_BD), labels_B, ref_emb=references, ref_labels=self.owners)


def _one_point() -> Tensor:
    return torch.randn(DIMENSIONS, generator=torch.Generator().manual_seed(1))


CASES = {
    "mfcwms-100": Case("mfcwms", 100),
    "mfcwms-11318": Case("mfcwms", 11318),
    "mfcont-11318": Case("mfcont", 11318),
    "mfnca-11318": Case("mfnca", 11318),
    "pfml-1680": Case("pfml", 100, proxies=15),
    "pfml-12180": Case("pfml", 800, proxies=15),
    "pfml-12180-collapsed": Case("pfml", 800, proxies=15, collapsed=True),
    "pfml-22816": Case("pfml", 11318, proxies=2, dense=False),
    # the 4 proxies of each class that ccp has on Stanford Online Products
    "c1-45272": Case("c1", 11318, proxies=4),
    "c2-45272": Case("c2", 11318, proxies=4),
    "ms-45272": Case("ms", 11318, proxies=4),
    "triplet-45272": Case("triplet", 11318, proxies=4),
}
BASELINES = [*list_baselines(), "generic_contrastive"]
for classes in (100, 11318):
    for baseline in BASELINES:
        CASES[f"{baseline}-{classes}"] = Case(baseline, classes, baseline=True)


def peak_memory(case: Case, implementation: str, device: str) -> float:
    """Returns the MB that one step adds to the peak of this process."""
    # a first step at a small size loads kernels and libraries, which do not count
    few = BATCH // 4 if case.baseline else 20
    replace(case, classes=few, proxies=min(case.proxies, 2)).step(implementation, device)()
    return added_peak(case.step(implementation, device), device)


def _report(name: str, times: dict[str, list[float]], memory: dict[str, float]) -> None:
    for implementation, rounds in times.items():
        against = ""
        if implementation != "ours":
            ratio = median_ratio(rounds, times["ours"])
            more = memory[implementation] / max(memory["ours"], 1e-3)
            against = f"  {ratio:6.2f}x our time, {more:6.2f}x our memory"
        used = f"{1e3 * median(rounds):10.1f} ms {memory[implementation]:8.0f} MB"
        print(f"{name:25s} {implementation:13s} {used}{against}", flush=True)


def main(argv: list[str]) -> None:
    """Measures the chosen cases and prints a line for each implementation."""
    parser = Parser(__doc__, program="benchmark.py losses")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES], metavar="case")
    parser.add_argument(
        "--rounds", type=whole_number(1), default=7, help="timed rounds (default 7)"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    options = parser.parse_args(argv)

    print(
        f"# {machine(options.device)}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print(f"# forward + backward, B {BATCH}, D {DIMENSIONS}, float32, {options.rounds} rounds")
    for name in options.cases:
        case = CASES[name]
        kinds = case.implementations()
        steps = {kind: case.step(kind, options.device) for kind in kinds}
        measures = {kind: partial(seconds, step) for kind, step in steps.items()}
        in_turns(measures, 1)
        times = in_turns(measures, options.rounds)
        del steps, measures
        memory = {k: in_fresh_process(peak_memory, case, k, options.device) for k in kinds}
        _report(name, times, memory)
