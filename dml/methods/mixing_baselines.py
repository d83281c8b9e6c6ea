"""The mixing methods that Metrix is compared with: i-Mix, MoCHi and Proxy Synthesis.

All use the hyperparameters, the averages and the proxies of a clean loss, and are equal to it
without mixes.

Shapes: B images, D embedding dimensions, C classes, K mixes of an anchor, V mixes in all, N new
classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.arguments import to_working_precision
from dml.losses.cosine import unit_rows
from dml.losses.generic import compute_proxy_loss
from dml.losses.metric_loss import Pairs
from dml.methods.metrix.mixed_pooling import mix
from dml.methods.metrix.mixed_similarity import mixed_norms
from dml.methods.metrix.mixing_pairs import draw_lambdas
from dml.methods.options import Count, NonNegative, Positive, require_form
from dml.methods.plain import Plain
from dml.models.embedder import Embedder

Miner = Callable[[Tensor, Tensor], Any]


class IMix(Plain):
    """i-Mix (Lee et al., ICLR 2021) with labels: the anchors are images mixed with a negative.

    λ times the loss with the labels of the images + (1 − λ) times the loss with the labels of their
    negatives, in place of the clean loss, which it equals at λ = 1. Each mix is compared with the
    clean images, without its image in the first term and without its negative in the second term.

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        miner: chooses pairs of clean images; a mix is compared with the images that are paired
            with its image, or with its negative.
        alpha: λ ~ Beta(α, α), one for the batch; above 0.
        clean: weight of the clean loss, which is added; at least 0.

    Raises:
        UserError: the loss has no such form.
    """

    whole = frozenset({"images"})

    def __init__(
        self,
        loss: nn.Module,
        miner: Miner | None = None,
        alpha: Positive = 1.0,
        clean: NonNegative = 0.0,
    ) -> None:
        super().__init__(loss, miner)
        self.form = require_form(loss, "imix", proxies=False)
        self.alpha, self.clean = alpha, clean

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B; logs `loss_mixed`."""
        embeddings = embedder(images)
        differ_BB = labels[:, None] != labels
        chance_BB = torch.rand(differ_BB.shape).to(images.device, non_blocking=True)
        partner_B = chance_BB.masked_fill(~differ_BB, -1).argmax(dim=1)
        row_B = torch.arange(len(labels), device=labels.device)
        lambda_B = draw_lambdas(len(labels), self.alpha, "batch", like=images)
        mixed = embedder(mix(images, row_B, partner_B, lambda_B))
        with torch.autocast(images.device.type, enabled=False):
            x_BD = to_working_precision(embeddings)
            s_BB = unit_rows(to_working_precision(mixed))[0] @ unit_rows(x_BD)[0].T
            mined = self.mine(x_BD, labels)
            positive_BB, negative_BB = Pairs(labels, labels, row_B, mined).masks()
            y_BB, present_BB = positive_BB.to(s_BB.dtype), positive_BB | negative_BB
            loss = lambda_B[0] * self.form.loss(s_BB, y_BB, present_BB)
            as_partner = self.form.loss(s_BB, y_BB[partner_B], present_BB[partner_B])
            loss = loss + (1 - lambda_B[0]) * as_partner
            logs = {"loss_mixed": loss.detach()}
            if self.clean:
                loss = loss + self.clean * self.clean_loss(x_BD, labels, mined).value
        return loss, logs


class MoCHi(Plain):
    """MoCHi (Kalantidis et al., NeurIPS 2020) with labels: synthetic hard negatives per anchor.

    For each of the hardest negatives n of an anchor a, a mix is added to the negatives:
    λa + (1 − λ)n with λ ~ U(0, 0.5), or λn + (1 − λ)n' with λ ~ U(0, 1) and n' another hard
    negative, normalized.

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        miner: must be None: all pairs count.
        pairs: "anc_neg" or "neg_neg".
        hard_negatives: number of negatives per anchor, at least 1; all if the batch has fewer.

    Raises:
        UserError: the loss has no such form.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Miner | None = None,
        pairs: Literal["anc_neg", "neg_neg"] = "anc_neg",
        hard_negatives: Count = 100,
    ) -> None:
        super().__init__(loss)
        refuse_miner(miner, "mochi")
        self.form = require_form(loss, "mochi", proxies=False)
        self.pairs, self.hard_negatives = pairs, hard_negatives

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B."""
        embeddings = embedder(images)
        with torch.autocast(images.device.type, enabled=False):
            u_BD = unit_rows(to_working_precision(embeddings))[0]
            s_BB = u_BD @ u_BD.T
            same_BB = labels[:, None] == labels
            other_BB = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
            s_BK, present_BK = self._mix_negatives(s_BB, ~same_BB)
            s_BU = torch.cat([s_BB, s_BK], dim=1)
            y_BU = torch.cat([same_BB.to(s_BB.dtype), torch.zeros_like(s_BK)], dim=1)
            return self.form.loss(s_BU, y_BU, torch.cat([other_BB, present_BK], dim=1)), {}

    def _mix_negatives(self, s_BB: Tensor, negative_BB: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the similarity of each anchor to its mixes, and a mask of mixes that exist (B×K).

        As for embedding mixup, the similarities follow from those of the mixed vectors.
        """
        k = min(self.hard_negatives, len(s_BB))
        hard_BK = s_BB.detach().masked_fill(~negative_BB, -torch.inf).topk(k, dim=1).indices
        exists_BK = negative_BB.gather(1, hard_BK)
        lambda_BK = torch.rand(hard_BK.shape).to(s_BB, non_blocking=True)
        row_B1 = torch.arange(len(s_BB), device=s_BB.device)[:, None]
        if self.pairs == "anc_neg":
            first_BK, lambda_BK = row_B1.expand_as(hard_BK), lambda_BK / 2
        else:
            # The negatives come first in a row; all other negatives are equally likely partners.
            count_B1 = exists_BK.sum(dim=1, keepdim=True)
            chance_BK = torch.rand(hard_BK.shape).to(s_BB, non_blocking=True)
            step_BK = (chance_BK * (count_B1 - 1)).long() + 1
            rank_BK = (torch.arange(k, device=s_BB.device) + step_BK) % count_B1.clamp_min(1)
            first_BK = hard_BK.gather(1, rank_BK)
            exists_BK = exists_BK & (count_B1 > 1)
        along_BK = torch.lerp(s_BB.gather(1, hard_BK), s_BB[row_B1, first_BK], lambda_BK)
        return along_BK / mixed_norms(s_BB, first_BK, hard_BK, lambda_BK), exists_BK


class ProxySynthesis(Plain):
    """Proxy Synthesis (Gu et al., AAAI 2021): mixes of two classes are new classes.

    Each image is mixed with the previous image of the batch (the first with the last), and their
    proxies with the same λ; the normalized mixes are added to the batch and to the proxies. This
    follows the authors' code, in which neighbors have different classes. In other batches, the
    partners are not neighbors: their distance in the batch is the smallest one that pairs the
    fewest images of the same class, which is m for m images of each class in turn. Remaining pairs
    of the same class are not mixed, since their new class would have the proxy of an existing
    class.

    Args:
        loss: has a generic form with proxies.
        miner: must be None: all images are compared with all proxies.
        alpha: λ ~ Beta(α, α), one for the batch; above 0.
        classes: "mix": each mix is a new class (authors' code); "pair": all mixes of two classes
            in the same order are one new class.

    Raises:
        UserError: the loss has no such form.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Miner | None = None,
        alpha: Positive = 0.4,
        classes: Literal["mix", "pair"] = "mix",
    ) -> None:
        super().__init__(loss)
        refuse_miner(miner, "proxy_synthesis")
        self.form = require_form(loss, "proxy_synthesis", proxies=True)
        self.alpha, self.classes = alpha, classes

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B."""
        embeddings = embedder(images)
        with torch.autocast(images.device.type, enabled=False):
            u_BD = unit_rows(to_working_precision(embeddings))[0]
            proxies: Tensor = self.loss.proxies  # type: ignore[assignment]
            p_CD = unit_rows(proxies.to(u_BD))[0]
            partner_B = _pair_with_earlier(labels)
            first_V = (labels != labels[partner_B]).nonzero().squeeze(1)
            second_V = partner_B[first_V]
            classes_2N = labels[torch.stack([first_V, second_V])]
            new_label_V = torch.arange(len(first_V), device=labels.device)
            if self.classes == "pair":
                classes_2N, new_label_V = classes_2N.unique(dim=1, return_inverse=True)
            factor = draw_lambdas(1, self.alpha, "batch", like=u_BD)
            v_VD = unit_rows(mix(u_BD, first_V, second_V, factor.expand(len(first_V))))[0]
            first_N, second_N = classes_2N
            q_ND = unit_rows(mix(p_CD, first_N, second_N, factor.expand(len(first_N))))[0]
            loss = compute_proxy_loss(
                self.form,
                torch.cat([u_BD, v_VD]),
                torch.cat([labels, len(p_CD) + new_label_V]),
                torch.cat([p_CD, q_ND]),
            )
            return loss, {}


def _pair_with_earlier(labels: Tensor) -> Tensor:
    """Returns each image's partner (B), at the distance that pairs the fewest images of a class."""
    row_B = torch.arange(len(labels), device=labels.device)
    earlier_BB = (row_B - row_B[:, None] - 1) % len(labels)  # a row per distance, from 1
    same_BB = labels[earlier_BB] == labels
    return earlier_BB[same_BB.sum(dim=1).argmin()]


def refuse_miner(miner: Miner | None, method: str) -> None:
    """Raises UserError if a miner is given."""
    if miner is not None:
        raise UserError(
            f"loss.miner: method={method} uses all pairs; choose a loss without a miner"
        )
