"""CCP: a sequence of regularized proxy problems (Deep Metric Learning with Chance Constraints).

Each stage trains network and proxies until validation stops improving. The next stage starts from
new proxies, picked far from the previous ones, and pulls the network towards the best weights of
the previous stage. The values of the paper are in `configs/method/ccp.yaml`.

Shapes: B images in a batch, C classes, k proxies per class, D embedding dimensions, n pool images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dml.core.torch_internals import add_differences
from dml.losses.arguments import to_working_precision
from dml.losses.c1_c2 import C1Loss, C2Loss
from dml.losses.distances import clip_to_ball
from dml.methods.chance_constrained.k_center import (
    embed_pool,
    mean_covering_radius,
    pick_k_centers,
    pool_size_per_class,
)
from dml.methods.loss_values import empty_logs, read_loss
from dml.methods.options import Count, NonNegative
from dml.methods.reference_losses import prepare_for_references
from dml.models.embedder import Embedder
from dml.retrieval.coverage import gather_points
from dml.training.interfaces import Method, SamplePool
from dml.training.stopping import Stopping


@dataclass(frozen=True)
class StageStart:
    """State at the start of a stage, passed to `ChanceConstrained.on_stage`.

    Attributes:
        stage: number of the stage, from 0.
        converged: best proxies of the previous stage, C×k×D; zero in stage 0.
        proxies: proxies picked for this stage, C×k×D.
    """

    stage: int
    converged: Tensor
    proxies: Tensor


class ChanceConstrained(Method):
    """Alternating projections with re-initialized proxies (ccp, Algorithms 1 and 2).

    The loss of a batch is L(samples, proxies) + w · L(samples, samples). From stage 1 on,
    `λ(θ − θ*)` is added to the network's gradient, where `θ*` are the best weights of the previous
    stage. (The paper prints the opposite sign, which would push away from θ*.) θ continues from its
    last value, and the optimizer keeps its state; new proxies replace the old ones in place.

    Proxies are embeddings before the normalizer and are clipped for the loss. The pool of a stage
    is embedded by the network at the start of the stage. A class with fewer images than the pool
    needs is drawn with replacement, with a new augmentation for each draw.

    Args:
        loss: a loss of pairs or triplets that accepts references.
        miner: must be None.
        num_classes: C.
        embedding_size: D.
        proxies_per_class: k ≥ 1.
        pool_size: b, images per class from which k-center chooses; b ≤ k: k random images.
        lambda_pull: λ ≥ 0.
        batch_pairs_weight: w ≥ 0; 0.1 in the authors' code, 0 in the paper.
        stages: largest number of stages; 1: one stage until the protocol stops (Loss-Proxy);
            None: no limit.
        stage_patience: number of evaluations in a row without improvement that end a stage.
        min_delta: smallest improvement within a stage.

    Raises:
        UserError: the loss does not accept references.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Any,
        num_classes: int,
        embedding_size: int,
        proxies_per_class: Count = 8,
        pool_size: Count = 12,
        lambda_pull: NonNegative = 2e-4,
        batch_pairs_weight: NonNegative = 0.1,
        stages: Count | None = None,
        stage_patience: Count = 3,
        min_delta: NonNegative = 1e-5,
    ) -> None:
        super().__init__()
        self.loss = prepare_for_references(loss, miner, embedding_size, "ccp")
        self.loss_clips = isinstance(self.loss, C1Loss | C2Loss)
        self.num_classes, self.proxies_per_class = num_classes, proxies_per_class
        self.pool_size = pool_size_per_class(pool_size, proxies_per_class)
        self.has_choice = pool_size > proxies_per_class
        self.lambda_pull, self.batch_pairs_weight = lambda_pull, batch_pairs_weight
        self.stages, self.stage_patience, self.min_delta = stages, stage_patience, min_delta
        self.proxies = nn.Parameter(torch.zeros(num_classes * proxies_per_class, embedding_size))
        owners = torch.arange(num_classes).repeat_interleave(proxies_per_class)
        self.register_buffer("proxy_labels", owners, persistent=False)
        self._sample_pool: SamplePool | None = None
        self._stage, self._stage_steps, self._stage_is_over = -1, 0, True
        self._radius_before = self._radius_after = 0.0
        self._stopping = self._new_stopping()
        self._anchor: dict[str, Tensor] = {}  # θ*
        self._best: dict[str, Tensor] = {}  # weights at the best evaluation of this stage
        self._best_proxies: Tensor | None = None

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B; starts the next stage if necessary."""
        if self._stage_is_over and self.training:
            self._start_stage(embedder)
        self._stage_steps += self.training
        embeddings = embedder(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = to_working_precision(embeddings)
            references = self.proxies if self.loss_clips else clip_to_ball(self.proxies)
            returned = self.loss(
                embeddings, labels, ref_emb=references, ref_labels=self.proxy_labels
            )
            read = [read_loss(returned, embeddings, self.loss)]
            loss = read[0].value
            if self.batch_pairs_weight:
                read.append(read_loss(self.loss(embeddings, labels), embeddings, self.loss))
                loss = loss + self.batch_pairs_weight * read[1].value
        return loss, empty_logs(*read)

    def attach(self, sample_pool: SamplePool) -> None:
        """Receives the images from which proxies are picked."""
        self._sample_pool = sample_pool

    @torch.no_grad()
    def after_backward(self, embedder: Embedder) -> None:
        """Adds λ(θ − θ*) to the gradient of every trainable weight, except in stage 0."""
        if not self._anchor or not self.lambda_pull:
            return
        weights: list[Tensor] = []
        anchors: list[Tensor] = []
        gradients: list[Tensor] = []
        for name, p in embedder.named_parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                weights.append(p)
                anchors.append(self._anchor[name])
                gradients.append(p.grad)
        add_differences(gradients, weights, anchors, self.lambda_pull)

    def on_evaluation(self, embedder: Embedder, score: float) -> dict[str, float]:
        """Keeps the best weights and proxies of the stage; ends it after `stage_patience`."""
        columns = {
            "stage": self._stage,
            "stage_steps": self._stage_steps,
            "radius_before": self._radius_before,
            "radius_after": self._radius_after,
        }
        if self._stopping.update(score, 0.0, self._stage_steps):
            fixed = getattr(embedder, "fixed", ())  # the network may be one of the user's
            self._best = {
                name: p.detach().clone()
                for name, p in embedder.named_parameters()
                if name not in fixed
            }
            self._best_proxies = self.proxies.detach().clone()
        is_last = self.stages is not None and self._stage + 1 >= self.stages
        # The next stage starts with the next step: its pool is not needed if training ends here.
        self._stage_is_over = self._stopping.exhausted(0.0) and not is_last
        return columns

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the state of the stages, without the proxies, in plain types and tensors."""
        return {
            "stage": self._stage,
            "stage_steps": self._stage_steps,
            "stage_is_over": self._stage_is_over,
            "radii": [self._radius_before, self._radius_after],
            "stopping": self._stopping.state_dict(),
            "anchor": self._anchor,
            "best": self._best,
            "best_proxies": self._best_proxies,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores the state that `get_extra_state` returned."""
        self._stage, self._stage_steps = state["stage"], state["stage_steps"]
        self._stage_is_over = state["stage_is_over"]
        self._radius_before, self._radius_after = state["radii"]
        self._stopping.load_state_dict(state["stopping"])
        device = self.proxies.device
        self._anchor = {name: value.to(device) for name, value in state["anchor"].items()}
        self._best = {name: value.to(device) for name, value in state["best"].items()}
        best = state["best_proxies"]
        self._best_proxies = None if best is None else best.to(device)

    @torch.no_grad()
    def _start_stage(self, embedder: Embedder) -> None:
        if self._sample_pool is None:
            raise RuntimeError("attach(sample_pool) must be called before training")
        self._stage += 1
        pool_CnD = embed_pool(
            embedder, self._sample_pool(self.pool_size, self._stage), self.num_classes
        ).to(self.proxies.dtype)
        shape = (self.num_classes, self.proxies_per_class, -1)
        last = torch.zeros_like(self.proxies) if self._best_proxies is None else self._best_proxies
        converged_CkD = last.view(*shape)
        if self.has_choice:
            picks_Ck = pick_k_centers(pool_CnD, converged_CkD, self.proxies_per_class)
            proxies_CkD = gather_points(pool_CnD, picks_Ck)
        else:
            proxies_CkD = pool_CnD
        self._measure_radii(pool_CnD, converged_CkD, proxies_CkD)
        self.proxies.copy_(proxies_CkD.flatten(0, 1))
        self._anchor, self._best = self._best, {}
        self._stage_steps, self._stage_is_over = 0, False
        self._stopping = self._new_stopping()
        self.on_stage(StageStart(self._stage, converged_CkD, proxies_CkD))

    def _measure_radii(self, pool_CnD: Tensor, converged_CkD: Tensor, proxies_CkD: Tensor) -> None:
        """Stores the covering radius of the pool for the old proxies, and for old and new proxies.

        Vectors are clipped as in the loss, for which lengths above 1 have no meaning.
        """
        pool_CnD, old, new = _clip(pool_CnD), _clip(converged_CkD), _clip(proxies_CkD)
        both = new if self._best_proxies is None else torch.cat([old, new], dim=1)
        self._radius_before = mean_covering_radius(pool_CnD, old)
        self._radius_after = mean_covering_radius(pool_CnD, both)

    def _new_stopping(self) -> Stopping:
        return Stopping(self.stage_patience, "evaluations", self.min_delta)


def _clip(x_CnD: Tensor) -> Tensor:
    return clip_to_ball(x_CnD.flatten(0, 1)).view_as(x_CnD)
