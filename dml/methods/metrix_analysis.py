"""What Metrix does to a space of embeddings, measured on a finished run (metrix, §3.6 and §4.3).

Alignment and uniformity of the test embeddings; utilization of the training embeddings by them,
without and with mixed ones; how often a mixed embedding acts as a positive, measured and predicted.

Shapes: B images, D embedding dimensions, V mixes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dml import build, protocols
from dml.durable import replacing, write_text
from dml.errors import UserError
from dml.evaluation import Split
from dml.job import JobRun
from dml.loading import load_config
from dml.losses.cosine import unit_rows
from dml.losses.generic_forms import MultiSimilarity
from dml.methods.metrix import Metrix
from dml.methods.metrix_mixes import Batches, mixed_embeddings
from dml.methods.metrix_options import form_of
from dml.methods.metrix_pairs import draw_lambdas
from dml.methods.metrix_similarity import mixed_similarity
from dml.retrieval.geometry import (
    alignment,
    positivity,
    predicted_positivity,
    uniformity,
    utilization,
)
from dml.run_folder import RunFolder
from dml.training.checkpoint import read


@dataclass(frozen=True)
class Positivity:
    """Shares of mixes that act as positives in equal intervals of λ; NaN where no λ fell.

    Attributes:
        measured: where ∂ℓ̃/∂s ≤ 0.
        predicted: by Eq. 11; None for a loss other than multi-similarity.
    """

    measured: Tensor
    predicted: Tensor | None


def measure_positivity(
    loss: nn.Module, embedder: nn.Module, batches: Batches, bins: int = 20
) -> Positivity:
    """Embedding mixup of positives and negatives, λ drawn per pair from Beta(2, 2) (Fig. 2).

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        embedder: the network, in the mode it is in.
        batches: images and labels.
        bins: intervals of λ.

    Raises:
        UserError: the loss has no such form, or no batch holds a positive and a negative.
    """
    form = form_of(loss, "metrix", proxies=False)
    method = Metrix(loss, types=["embed"], pairs=["pos_neg"])
    parts: list[Tensor] = []
    for images, labels in batches:
        with torch.no_grad():
            u_BD = unit_rows(embedder(images))[0].double()
        anchors_AD, sources_SD, plan = method.plan(u_BD, labels, "embed", "pos_neg")
        if not len(plan):
            continue
        lambda_V = draw_lambdas(len(plan), method.alpha, "pair", like=u_BD)
        s_AK = mixed_similarity(anchors_AD, sources_SD, plan, lambda_V).requires_grad_()
        value = form.loss(s_AK, plan.labels(lambda_V), plan.present)
        (slope_AK,) = torch.autograd.grad(value, s_AK)
        there = plan.present
        parts.append(
            torch.stack([slope_AK[there], s_AK.detach()[there], plan.labels(lambda_V)[there]])
        )
    if not parts:
        raise UserError("data.batch_size: no batch holds a positive and a negative to mix")
    slopes, s, lambdas = torch.cat(parts, dim=1)
    predicted = None
    if isinstance(form, MultiSimilarity):
        predicted = predicted_positivity(
            s, lambdas, beta=form.beta, gamma=form.gamma, margin=form.margin, bins=bins
        )
    return Positivity(positivity(slopes, lambdas, bins), predicted)


def analyze(run_folder: str | Path, epochs: int = 1, job_number: int = 0) -> dict[str, float]:
    """Measures a run's best network; writes CSV files and a picture into its `analysis/`.

    Args:
        run_folder: `outputs/…/seed<seed>-<digest>`.
        epochs: of mixed embeddings for the utilization, and of batches for the positivity.
        job_number: which of the run's models.

    Returns:
        `alignment`, `uniformity`, `utilization`, and for a run of Metrix `utilization_mixed`.

    Raises:
        UserError: there is no such run, or its data are absent.
    """
    config, folder = load_config(run_folder), RunFolder(run_folder)
    config.backbone["weights"] = "none"  # they are in the checkpoint
    index = build.build_index(config)
    device = build.resolve_device(config.device)
    p, noise = config.protocol, config.data.label_noise
    job = protocols.jobs(p.splits, p.repeats, index, noise, config.seed)[job_number]
    source = build.open_source(config, index, device)
    run = JobRun(config, {}, job, folder.job(job.name), device, source)
    try:
        best = read(folder.job(job.name) / "best.pt")
    except FileNotFoundError as error:
        raise UserError(f"run: {run_folder} has no trained model {job.name}") from error
    run.embedder.load_state_dict(best["embedder"])
    run.method.load_state_dict(best["method"])
    run.embedder.eval()

    test = run.feeding.evaluator(job.test).embed(run.embedder)
    queries = unit_rows(test.query)[0]
    training = unit_rows(run.feeding.evaluator(Split(job.train)).embed(run.embedder).query)[0]
    measures = {
        "alignment": alignment(queries, test.query_labels),
        "uniformity": uniformity(queries),
        "utilization": utilization(queries, training),
    }
    method = run.method
    if isinstance(method, Metrix):
        mixed = mixed_embeddings(method, run.embedder, run.feeding.batches(epochs))
        measures["utilization_mixed"] = utilization(queries, _chain(training, mixed))
    write_measures(measures, folder.path / "analysis" / "measures.csv")
    try:
        curve = measure_positivity(method.loss, run.embedder, run.feeding.batches(epochs))  # type: ignore[arg-type]
    except UserError:
        return measures  # a loss with proxies, or with no generic form, has no such curve
    write_positivity(curve, folder.path / "analysis" / "positivity.csv")
    draw_positivity(curve, folder.path / "analysis" / "positivity.png")
    return measures


def draw_positivity_of(run: JobRun, path: Path, epochs: int = 1) -> None:
    """Draws the positivity of a model as it is; a CSV file with the same numbers lies beside it.

    Raises:
        UserError: its loss has no generic form with positives and negatives.
    """
    run.embedder.eval()
    curve = measure_positivity(run.method.loss, run.embedder, run.feeding.batches(epochs))  # type: ignore[arg-type]
    write_positivity(curve, path.with_suffix(".csv"))
    draw_positivity(curve, path)


def write_measures(measures: dict[str, float], path: Path) -> None:
    """Writes a CSV file with the columns measure and value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name},{value:.6g}" for name, value in measures.items()]
    write_text(path, "\n".join(["measure,value", *lines, ""]))


def write_positivity(curve: Positivity, path: Path) -> None:
    """Writes a CSV file with the columns lambda (middle of the interval), measured, predicted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bins = len(curve.measured)
    predicted = [math.nan] * bins if curve.predicted is None else curve.predicted.tolist()
    lines = [
        f"{(number + 0.5) / bins:g},{measured:.6g},{expected:.6g}"
        for number, (measured, expected) in enumerate(
            zip(curve.measured.tolist(), predicted, strict=True)
        )
    ]
    write_text(path, "\n".join(["lambda,measured,predicted", *lines, ""]))


def draw_positivity(curve: Positivity, path: Path) -> None:
    """Draws both curves against λ into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    bins = len(curve.measured)
    middles = [(number + 0.5) / bins for number in range(bins)]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.plot(middles, curve.measured.tolist(), "o-", color="#3366aa", label="measured")
    if curve.predicted is not None:
        axes.plot(middles, curve.predicted.tolist(), "s--", color="#cc7722", label="predicted")
    axes.set(xlabel="λ", ylabel="share of mixes that act as positives", xlim=(0, 1), ylim=(0, 1))
    axes.legend()
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120)
    plt.close(figure)


def _chain(first: Tensor, others: Iterator[Tensor]) -> Iterator[Tensor]:
    yield first
    yield from others
