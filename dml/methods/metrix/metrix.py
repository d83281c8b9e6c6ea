"""Metrix: a loss on mixed inputs, features or embeddings with mixed labels, beside the clean one.

E = mean over anchors of ℓ(a) + w ℓ̃(a)   (It Takes Two to Tango, Eq. 10)

Shapes: B images, D embedding dimensions, C classes, A anchors, S sources of mixes, V distinct
pairs, K pairs of the anchor that has most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.base import working_precision
from dml.losses.cosine import unit_rows
from dml.methods.metrix_options import choices, count, draw, form_of, number
from dml.methods.metrix_pairs import PAIRS, Pairs, draw_lambdas, hardest, mixing_pairs
from dml.methods.metrix_pooling import mix, mixed_pool
from dml.methods.metrix_similarity import mixed_proxy_loss, mixed_similarity
from dml.methods.plain import Plain

TYPES = ("input", "feature", "embed")


class Metrix(Plain):
    """The clean loss plus the generic form of the same loss over mixed examples.

    The form takes the hyperparameters, and the proxies, of the clean loss. What is mixed and in
    which pairs is drawn anew for each batch from `types` and `pairs`.

    Args:
        loss: the clean loss; must have a generic form.
        miner: for the clean loss; all pairs are mixed.
        types: what is mixed: "input", "feature" (before pooling) or "embed"; one or several.
        pairs: "pos_neg", "anc_neg", "pos_pos" or "neg_neg"; one or several.
        w: weight of the mixed loss, at least 0.
        alpha: λ ~ Beta(α, α), above 0.
        lambda_per: one λ for the "batch", or one for each "pair".
        hard_negatives: per type, how many of an anchor's most similar negatives are mixed; None
            or absent: all.
        input_positives: how many random positives of an anchor are mixed in "input"; None: all.
            The number of mixed images grows with it times the hard negatives times the batch.

    Raises:
        UserError: the loss has no generic form, or an option is wrong.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Callable[[Tensor, Tensor], Any] | None = None,
        types: Sequence[str] = ("feature",),
        pairs: Sequence[str] = ("pos_neg", "anc_neg"),
        w: float = 0.4,
        alpha: float = 2.0,
        lambda_per: str = "batch",
        hard_negatives: Mapping[str, int | None] | None = None,
        input_positives: int | None = None,
    ) -> None:
        super().__init__(loss, miner)
        self.form = form_of(loss, "metrix")
        self.types = choices("method.types", types, TYPES)
        of_type = {"input": "images", "feature": "features"}
        self.whole = frozenset(of_type[name] for name in self.types if name in of_type)
        asked = choices("method.pairs", pairs, PAIRS)
        self.pairs = {name: self._possible(name, asked) for name in self.types}
        self.w = number("method.w", w, 0)
        self.alpha = number("method.alpha", alpha, 0, above=True)
        (self.lambda_per,) = choices("method.lambda_per", [lambda_per], ("batch", "pair"))
        hard_negatives = {"input": 3} if hard_negatives is None else hard_negatives
        if not isinstance(hard_negatives, Mapping):
            raise UserError(
                f"method.hard_negatives={hard_negatives} must say for which types: "
                f"{{{', '.join(f'{name}: {hard_negatives}' for name in self.types)}}}"
            )
        self.hard_negatives = dict(hard_negatives)
        for name, k in self.hard_negatives.items():
            choices("method.hard_negatives", [name], TYPES)
            if k is not None:
                count(f"method.hard_negatives.{name}", k)
        self.input_positives = input_positives
        if input_positives is not None:
            count("method.input_positives", input_positives)

    @staticmethod
    def result_id(loss_id: str, options: Mapping[str, Any]) -> str:
        """Id in the tables of printed results: `contrastive+metrix_input_feature`."""
        chosen = choices("method.types", options["types"], TYPES)
        return f"{loss_id}+metrix_{'_'.join(chosen)}"

    def forward(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of images B×3×H×W with labels B; logs `loss_clean` and `loss_mixed`."""
        features = embedder.features(images)  # type: ignore[operator]
        x_BD = working_precision(embedder.embed(features))  # type: ignore[operator]
        with torch.autocast(x_BD.device.type, enabled=False):
            mined = None if self.miner is None else self.miner(x_BD, labels)
            clean = self.loss(x_BD, labels, mined)
        if not self.w:
            return clean, {"loss_clean": clean.detach(), "loss_mixed": torch.zeros_like(clean)}
        kind = draw(self.types)
        pairs = draw(self.pairs[kind])
        given = {"input": images, "feature": features, "embed": x_BD}[kind]
        mixed = self.mixed_loss(embedder, kind, pairs, given, x_BD, labels)
        logs = {"loss_clean": clean.detach(), "loss_mixed": mixed.detach()}
        return clean + self.w * mixed, logs

    def mixed_loss(
        self,
        embedder: nn.Module,
        kind: str,
        pairs: str,
        given: Tensor,
        x_BD: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """Mean of ℓ̃(a) over the anchors.

        Args:
            embedder: embeds what is mixed.
            kind: one of `TYPES`.
            pairs: one of `PAIRS`.
            given: what is mixed: images, features, or embeddings (`x_BD`).
            x_BD: clean embeddings.
            labels: of the images.
        """
        with torch.autocast(x_BD.device.type, enabled=False):
            u_BD = unit_rows(x_BD)[0]
            anchors_AD, sources_SD, plan = self.plan(u_BD, labels, kind, pairs)
            if not len(plan):
                return 0 * u_BD.sum()
            lambda_V = draw_lambdas(len(plan), self.alpha, self.lambda_per, like=u_BD)
        # Out of the block above: here the network runs under the trainer's autocast.
        mixed_VD = self.mixed_embeddings(embedder, kind, given, plan, lambda_V)
        with torch.autocast(x_BD.device.type, enabled=False):
            if self.form.others == "proxies":
                mixed_VD = None if mixed_VD is None else unit_rows(working_precision(mixed_VD))[0]
                return mixed_proxy_loss(
                    self.form, self._proxies(), u_BD, mixed_VD, labels, plan, lambda_V
                )
            if mixed_VD is None:
                s_AK = mixed_similarity(anchors_AD, sources_SD, plan, lambda_V)
            else:
                v_VD = unit_rows(working_precision(mixed_VD))[0]
                s_AK = (anchors_AD @ v_VD.T).gather(1, plan.of_anchor)
            return self.form.loss(s_AK, plan.labels(lambda_V), plan.present)

    def mixed_embeddings(
        self, embedder: nn.Module, kind: str, given: Tensor, plan: Pairs, lambda_V: Tensor
    ) -> Tensor | None:
        """Embeddings V×D of mixed images or features; None for "embed", which needs none."""
        if kind == "input":
            return embedder(mix(given, plan.first, plan.second, lambda_V))
        if kind == "feature":
            pooled_Vc = mixed_pool(embedder, given, plan.first, plan.second, lambda_V)
            return embedder.project(pooled_Vc)  # type: ignore[operator]
        return None

    def plan(
        self, u_BD: Tensor, labels: Tensor, kind: str, pairs: str
    ) -> tuple[Tensor, Tensor, Pairs]:
        """Anchors A×D and sources S×D, of length 1, and which pairs of sources are mixed."""
        anchors_AD = sources_SD = u_BD
        own_A = torch.arange(len(labels), device=labels.device)
        same_AS = labels[:, None] == labels
        positive_AS, negative_AS = same_AS & ~torch.eye(len(labels)).to(same_AS), ~same_AS
        if self.form.others == "proxies":  # the mixes are the anchors: each sample's partners
            partner_AS = positive_AS if pairs == "pos_pos" else negative_AS
            if pairs != "pos_pos":
                partner_AS = hardest(partner_AS, u_BD @ u_BD.T, self.hard_negatives.get(kind))
            return anchors_AD, sources_SD, mixing_pairs("anc_neg", positive_AS, partner_AS, own_A)
        if self.form.anchors == "proxies":
            present_A = labels.unique()
            anchors_AD = unit_rows(self._proxies().to(u_BD)[present_A])[0]
            positive_AS = present_A[:, None] == labels
            negative_AS = ~positive_AS
            if pairs == "anc_neg":  # the anchors themselves are mixed
                sources_SD = torch.cat([u_BD, anchors_AD])
                own_A = torch.arange(len(u_BD), len(sources_SD), device=labels.device)
                no_sample_AA = positive_AS.new_zeros(len(present_A), len(present_A))
                positive_AS = torch.cat([positive_AS, no_sample_AA], dim=1)
                negative_AS = torch.cat([negative_AS, no_sample_AA], dim=1)
        s_AS = anchors_AD @ sources_SD.T
        negative_AS = hardest(negative_AS, s_AS, self.hard_negatives.get(kind))
        if kind == "input" and self.input_positives is not None:
            chance_AS = torch.rand(positive_AS.shape).to(s_AS)
            positive_AS = hardest(positive_AS, chance_AS, self.input_positives)
        return anchors_AD, sources_SD, mixing_pairs(pairs, positive_AS, negative_AS, own_A)

    def _proxies(self) -> Tensor:
        """Those of the clean loss, of which the method keeps no copy."""
        return self.loss.proxies  # type: ignore[return-value]

    def _possible(self, kind: str, asked: list[str]) -> list[str]:
        """The asked pairs that exist for a type under this loss."""
        impossible = set()
        if self.form.anchors == "proxies" and kind != "embed":
            impossible = {"anc_neg"}  # a proxy has neither image nor features
        if self.form.others == "proxies":
            impossible = {"neg_neg"}  # the mix is the anchor and needs a positive proxy
        possible = [name for name in asked if name not in impossible]
        if not possible:
            valid = ", ".join(name for name in PAIRS if name not in impossible)
            raise UserError(
                f"method.pairs=[{', '.join(asked)}] with type '{kind}' and "
                f"{type(self.loss).__name__} leaves nothing to mix; choose from [{valid}]"
            )
        return possible
