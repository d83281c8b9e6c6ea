"""Analyses of Metrix: mixed embeddings, and which of them act as positives.

Shapes: B images, D embedding dimensions, V mixes, A anchors, K the largest number of pairs per
anchor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from dml.core.atomic_io import replace_file, write_text
from dml.core.errors import UserError
from dml.core.plotting import Figure
from dml.losses.cosine import unit_rows
from dml.losses.generic.forms import MultiSimilarity
from dml.methods.metrix.metrix import Metrix
from dml.methods.metrix.mixed_similarity import mixed_similarity
from dml.methods.metrix.mixing_pairs import draw_lambdas
from dml.methods.options import require_form
from dml.models.embedder import Embedder
from dml.retrieval.mixing import positivity, predicted_positivity

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Positivity:
    """Share of mixes that act as positives, in equal intervals of λ; NaN for an empty interval.

    Attributes:
        measured: share of mixes with ∂ℓ̃/∂s ≤ 0.
        predicted: the prediction of Eq. 11; None for losses other than multi-similarity.
    """

    measured: Tensor
    predicted: Tensor | None

    def write(self, path: Path) -> None:
        """Draws the shares against λ (metrix, Figure 2) as PNG.

        Columns of a CSV file of the same name: lambda (middle of the interval), measured,
        predicted.
        """
        predicted = float("nan") if self.predicted is None else self.predicted.numpy()
        table = pd.DataFrame({"measured": self.measured.numpy(), "predicted": predicted})
        table.index = pd.Index((table.index + 0.5) / len(table), name="lambda")
        write_text(path.with_suffix(".csv"), table.to_csv(float_format="%.6g", na_rep="nan"))
        figure = Figure((5, 4), layout="constrained")
        axes = figure.subplots()
        for name, style in (("measured", "o-"), ("predicted", "s--")):
            axes.plot(table[name].dropna(), style, label=name)
        label, limits = "share of mixes that act as positives", (-0.03, 1.03)  # markers at 0 and 1
        axes.set(xlabel="λ", ylabel=label, xlim=(0, 1), ylim=limits)
        axes.legend()
        with replace_file(path) as temporary:
            figure.savefig(temporary, format="png", dpi=130)


def measure_positivity(
    loss: nn.Module, embedder: Embedder, batches: Batches, bins: int = 20
) -> Positivity:
    """Returns the share of mixed positive-negative pairs that act as positives (Fig. 2).

    Embeddings are mixed with λ ~ Beta(2, 2) per pair.

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        embedder: the network; its mode is not changed.
        batches: images and labels.
        bins: number of intervals of λ.

    Raises:
        UserError: the loss has no such form, or no batch has a positive and a negative.
    """
    form = require_form(loss, "metrix", proxies=False)
    method = Metrix(loss, types=["embed"], pairs=["pos_neg"])
    parts: list[Tensor] = []
    for images, labels in batches:
        with torch.no_grad():
            u_BD = unit_rows(embedder(images))[0].double()
        anchors_AD, sources_SD, pairs = method.select_pairs(u_BD, labels, "embed", "pos_neg")
        if not len(pairs):
            continue
        lambda_V = draw_lambdas(len(pairs), method.alpha, "pair", like=u_BD)
        s_AK = mixed_similarity(anchors_AD, sources_SD, pairs, lambda_V).requires_grad_()
        value = form.loss(s_AK, pairs.labels(lambda_V), pairs.present)
        (slope_AK,) = torch.autograd.grad(value, s_AK)
        present = pairs.present
        parts.append(
            torch.stack(
                [slope_AK[present], s_AK.detach()[present], pairs.labels(lambda_V)[present]]
            )
        )
    if not parts:
        raise UserError("data.batch_size: no batch has a positive and a negative to mix")
    slopes, s, lambdas = torch.cat(parts, dim=1)
    predicted = None
    if isinstance(form, MultiSimilarity):
        predicted = predicted_positivity(
            s, lambdas, beta=form.beta, gamma=form.gamma, margin=form.margin, bins=bins
        )
    return Positivity(positivity(slopes, lambdas, bins), predicted)
