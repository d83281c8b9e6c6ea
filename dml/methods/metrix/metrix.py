"""Metrix: a loss of mixed inputs, features or embeddings with mixed labels, added to the clean one.

E = mean over anchors of ℓ(a) + w ℓ̃(a)   (It Takes Two to Tango, Eq. 10)

Shapes: B images, D embedding dimensions, C classes, A anchors, S sources of mixes, V distinct
pairs, K the largest number of pairs per anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import Field
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.arguments import to_working_precision
from dml.losses.cosine import unit_rows
from dml.losses.generic.forms import EuclideanContrastive
from dml.methods.loss_values import empty_logs
from dml.methods.metrix.mixed_pooling import mix, pool_mixes
from dml.methods.metrix.mixed_similarity import compute_mixed_proxy_loss, mixed_similarity
from dml.methods.metrix.mixing_pairs import (
    PAIRS,
    MixingPairs,
    PairKind,
    build_mixing_pairs,
    draw_lambdas,
    keep_hardest,
)
from dml.methods.options import Count, NonNegative, Positive, draw_one, require_form
from dml.methods.plain import Plain
from dml.models.embedder import Embedder

MixType = Literal["input", "feature", "embed"]
TYPES: tuple[MixType, ...] = get_args(MixType)


class Metrix(Plain):
    """The clean loss plus the generic form of the same loss over mixed examples.

    The form uses the hyperparameters and the proxies of the clean loss. For each batch, a type of
    mixup and a kind of pairs are drawn from `types` and `pairs`.

    Args:
        loss: the clean loss; must have a generic form.
        miner: miner of the clean loss; the mixed loss uses all pairs.
        types: types of mixup: "input", "feature" (before pooling) or "embed"; one or several.
        pairs: kinds of mixed pairs: "pos_neg", "anc_neg", "pos_pos" or "neg_neg"; one or several.
        w: weight of the mixed loss, at least 0.
        alpha: λ ~ Beta(α, α), above 0.
        lambda_per: one λ per "batch" or per "pair".
        hard_negatives: type → number of most similar negatives of an anchor that are mixed; None
            or missing: all.
        input_positives: number of random positives of an anchor that are mixed for type "input";
            None: all. The number of mixed images is at most the product of batch size, positives
            and hard negatives.
        average: averaging of the mixed contrastive loss: "terms": over the non-zero terms of the
            batch (authors' code); "anchors": per anchor, then over anchors.
        anc_neg_anchors: "all", or "lone": "anc_neg" mixes are used only for anchors without a
            positive (authors' code).

    Raises:
        UserError: the loss has no generic form, or pairs that it cannot mix are chosen.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Callable[[Tensor, Tensor], Any] | None = None,
        types: Annotated[Sequence[MixType], Field(min_length=1)] = ("feature",),
        pairs: Annotated[Sequence[PairKind], Field(min_length=1)] = ("pos_neg", "anc_neg"),
        w: NonNegative = 0.4,
        alpha: Positive = 2.0,
        lambda_per: Literal["batch", "pair"] = "batch",
        hard_negatives: dict[MixType, Count | None] | None = None,
        input_positives: Count | None = None,
        average: Literal["terms", "anchors"] = "terms",
        anc_neg_anchors: Literal["all", "lone"] = "all",
    ) -> None:
        super().__init__(loss, miner)
        self.lone_anchors_only = anc_neg_anchors == "lone"
        self.form = require_form(loss, "metrix")
        if isinstance(self.form, EuclideanContrastive):
            self.form = replace(self.form, average=average)
        self.types: list[str] = [name for name in TYPES if name in types]
        of_type = {"input": "images", "feature": "features"}
        self.whole = frozenset(of_type[name] for name in self.types if name in of_type)
        requested: list[str] = [name for name in PAIRS if name in pairs]
        self.pairs = {name: self._select_possible(name, requested) for name in self.types}
        self.w, self.alpha, self.lambda_per = w, alpha, lambda_per
        self.hard_negatives: dict[Any, int | None] = dict(hard_negatives or {})
        if hard_negatives is None:
            self.hard_negatives["input"] = 3
        self.input_positives = input_positives

    @staticmethod
    def result_id(loss_id: str, options: Mapping[str, Any]) -> str:
        """Returns the id in the tables of published results: `contrastive+metrix_input_feature`."""
        chosen = (name for name in TYPES if name in options["types"])
        return f"{loss_id}+metrix_{'_'.join(chosen)}"

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B; logs `loss_clean` and `loss_mixed`."""
        features = embedder.features(images)
        x_BD = to_working_precision(embedder.embed(features))
        with torch.autocast(x_BD.device.type, enabled=False):
            read = self.clean_loss(x_BD, labels, self.mine(x_BD, labels))
        clean = read.value
        if not self.w:
            logs = {"loss_clean": clean.detach(), "loss_mixed": torch.zeros_like(clean)}
            return clean, logs | empty_logs(read)
        mix_type = draw_one(self.types)
        pair_kind = draw_one(self.pairs[mix_type])
        sources = {"input": images, "feature": features, "embed": x_BD}[mix_type]
        mixed = self.mixed_loss(embedder, mix_type, pair_kind, sources, x_BD, labels)
        logs = {"loss_clean": clean.detach(), "loss_mixed": mixed.detach()}
        return clean + self.w * mixed, logs

    def mixed_loss(
        self,
        embedder: Embedder,
        mix_type: str,
        pair_kind: str,
        sources: Tensor,
        x_BD: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """Returns the mean of ℓ̃(a) over the anchors.

        Args:
            embedder: embeds mixed images or features.
            mix_type: one of `TYPES`.
            pair_kind: one of `PAIRS`.
            sources: tensors to mix: images, features, or embeddings (`x_BD`).
            x_BD: clean embeddings.
            labels: labels of the images.
        """
        with torch.autocast(x_BD.device.type, enabled=False):
            u_BD = unit_rows(x_BD)[0]
            anchors_AD, sources_SD, pairs = self.select_pairs(u_BD, labels, mix_type, pair_kind)
            if not len(pairs):
                return 0 * u_BD.sum()
            lambda_V = draw_lambdas(len(pairs), self.alpha, self.lambda_per, like=u_BD)
        # Outside of the block above: the network runs under the autocast of the trainer.
        mixed_VD = self.embed_mixed(embedder, mix_type, sources, pairs, lambda_V)
        with torch.autocast(x_BD.device.type, enabled=False):
            if mixed_VD is not None:
                mixed_VD = unit_rows(to_working_precision(mixed_VD))[0]
            if self.form.others == "proxies":
                return compute_mixed_proxy_loss(
                    self.form, self._proxies(), u_BD, mixed_VD, labels, pairs, lambda_V
                )
            if mixed_VD is None:
                s_AK = mixed_similarity(anchors_AD, sources_SD, pairs, lambda_V)
            else:
                s_AK = (anchors_AD @ mixed_VD.T).gather(1, pairs.of_anchor)
            return self.form.loss(s_AK, pairs.labels(lambda_V), pairs.present)

    def embed_mixed(
        self,
        embedder: Embedder,
        mix_type: str,
        sources: Tensor,
        pairs: MixingPairs,
        lambda_V: Tensor,
    ) -> Tensor | None:
        """Returns embeddings V×D of mixed images or features; None for "embed"."""
        if mix_type == "input":
            return embedder(mix(sources, pairs.first, pairs.second, lambda_V))
        if mix_type == "feature":
            pooled_Vc = pool_mixes(embedder, sources, pairs.first, pairs.second, lambda_V)
            return embedder.project(pooled_Vc)
        return None

    @torch.no_grad()
    def extra_embeddings(
        self, embedder: Embedder, batches: Iterable[tuple[Tensor, Tensor]]
    ) -> Iterator[Tensor]:
        """Yields the mixed unit embeddings V×D of each batch, without gradients."""
        for images, labels in batches:
            features = embedder.features(images)
            u_BD = unit_rows(embedder.embed(features))[0]
            mix_type = draw_one(self.types)
            pair_kind = draw_one(self.pairs[mix_type])
            _, sources_SD, pairs = self.select_pairs(u_BD, labels, mix_type, pair_kind)
            if not len(pairs):
                continue
            lambda_V = draw_lambdas(len(pairs), self.alpha, self.lambda_per, like=u_BD)
            mixed_input = images if mix_type == "input" else features
            mixed_VD = self.embed_mixed(embedder, mix_type, mixed_input, pairs, lambda_V)
            if mixed_VD is None:
                mixed_VD = mix(sources_SD, pairs.first, pairs.second, lambda_V)
            yield unit_rows(mixed_VD)[0]

    def select_pairs(
        self, u_BD: Tensor, labels: Tensor, mix_type: str, pair_kind: str
    ) -> tuple[Tensor, Tensor, MixingPairs]:
        """Returns unit anchors A×D, unit sources S×D, and the pairs of sources to mix."""
        anchors_AD = sources_SD = u_BD
        anchor_A = torch.arange(len(labels), device=labels.device)
        same_AS = labels[:, None] == labels
        self_AS = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        positive_AS, negative_AS = same_AS & ~self_AS, ~same_AS
        hard_negatives = self.hard_negatives.get(mix_type)
        if self.form.others == "proxies":  # the mixes are the anchors
            partner_AS = positive_AS if pair_kind == "pos_pos" else negative_AS
            if pair_kind != "pos_pos":
                partner_AS = keep_hardest(partner_AS, u_BD @ u_BD.T, hard_negatives)
            # Each image is mixed with its partners: "anc_neg" lists these, of any class.
            pairs = build_mixing_pairs("anc_neg", positive_AS, partner_AS, anchor_A)
            return anchors_AD, sources_SD, pairs
        if self.form.anchors == "proxies":
            present_A = labels.unique()
            anchors_AD = unit_rows(self._proxies().to(u_BD)[present_A])[0]
            positive_AS = present_A[:, None] == labels
            negative_AS = ~positive_AS
            if pair_kind == "anc_neg":  # the anchors themselves are mixed
                sources_SD = torch.cat([u_BD, anchors_AD])
                anchor_A = torch.arange(len(u_BD), len(sources_SD), device=labels.device)
                no_sample_AA = positive_AS.new_zeros(len(present_A), len(present_A))
                positive_AS = torch.cat([positive_AS, no_sample_AA], dim=1)
                negative_AS = torch.cat([negative_AS, no_sample_AA], dim=1)
        elif pair_kind == "anc_neg" and self.lone_anchors_only:
            negative_AS = negative_AS & ~positive_AS.any(dim=1, keepdim=True)
        s_AS = anchors_AD @ sources_SD.T
        negative_AS = keep_hardest(negative_AS, s_AS, hard_negatives)
        if mix_type == "input" and self.input_positives is not None:
            chance_AS = torch.rand(positive_AS.shape).to(s_AS, non_blocking=True)
            positive_AS = keep_hardest(positive_AS, chance_AS, self.input_positives)
        pairs = build_mixing_pairs(pair_kind, positive_AS, negative_AS, anchor_A)
        return anchors_AD, sources_SD, pairs

    def _proxies(self) -> Tensor:
        """Returns the proxies of the clean loss."""
        return self.loss.proxies  # type: ignore[return-value]

    def _select_possible(self, mix_type: str, requested: list[str]) -> list[str]:
        """Returns the requested kinds of pairs that are possible for a type and this loss.

        Raises:
            UserError: none is.
        """
        impossible = set()
        if self.form.anchors == "proxies" and mix_type != "embed":
            impossible.add("anc_neg")  # a proxy has neither image nor features
        if self.form.anchors == "proxies" and self.lone_anchors_only:
            impossible.add("anc_neg")  # every proxy of the batch has a positive
        if self.form.others == "proxies":
            impossible.add("neg_neg")  # the mix is the anchor and needs a positive proxy
        possible = [name for name in requested if name not in impossible]
        if not possible:
            valid = ", ".join(name for name in PAIRS if name not in impossible)
            raise UserError(
                f"method.pairs=[{', '.join(requested)}] with type '{mix_type}' and "
                f"{type(self.loss).__name__} leaves nothing to mix; choose from [{valid}]"
            )
        return possible
