"""Metrics in addition to retrieval scores: `evaluation.measures`.

`regularizer` (mft, Fig. 5), `w2` (pfml, Table 3), `covering_radius` and `inter_class_distance`
(ccp, Fig. 7) at every evaluation, so that history.csv has their curves; `alignment`, `uniformity`
and `utilization` (metrix, §4.3) of the best network, how well its clusters agree with the
classes (`nmi`, `ami`), and how early and how safely it finds a match (`mrr_at_r`, `fnmr_at_fmr_…`).
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dml.core.errors import UserError
from dml.core.metric_names import TEST_FMR, TEST_FNMR, THRESHOLD
from dml.core.option_values import EXTRA_METRICS
from dml.losses.cosine import unit_rows
from dml.losses.mean_field import MeanFieldLoss
from dml.losses.metric_loss import loss_proxies
from dml.models.embedder import Embedder
from dml.retrieval import geometry, retrieval_metrics
from dml.retrieval.coverage import covering_radius
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.verification import match_errors_at, match_thresholds
from dml.training.interfaces import Method

FNMR = "fnmr_at_fmr_"  # and the false match rate
OF_TRAINING = ("regularizer", "w2", "utilization", "positivity")  # of losses and training images

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExtraMetrics:
    """The extra metrics of the network and the loss of one job.

    Attributes:
        names: of `evaluation.measures`.
        embedder: the network.
        method: with the loss.
        training: returns embeddings N×D of the training images and their labels N.
        batches: returns the augmented training batches of an epoch.
    """

    names: Sequence[str]
    embedder: Embedder
    method: Method
    training: Callable[[], tuple[Tensor, Tensor]]
    batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]

    def at_evaluation(self, validation: SplitEmbeddings) -> dict[str, float]:
        """Returns the metrics that are computed at every evaluation.

        Raises:
            UserError: the loss has no mean fields, or no proxies.
        """
        points = validation.query, validation.query_labels
        functions = {
            "regularizer": self._regularizer,
            "w2": self._w2,
            "covering_radius": lambda: covering_radius(*points),
            "inter_class_distance": lambda: geometry.inter_class_distance(*points),
        }
        return {name: function() for name, function in functions.items() if name in self.names}

    def of_run(
        self,
        rows: Sequence[Mapping[str, float]],
        best: Mapping[str, Any],
        test: SplitEmbeddings,
        validation: SplitEmbeddings | None = None,
    ) -> dict[str, float]:
        """Returns all metrics of the best network.

        Args:
            rows: of the job in `history.csv`, the first one before training.
            best: its best evaluation, with `metrics`.
            test: embeddings of the test images.
            validation: those of other images, which choose the thresholds of verification.
        """
        functions = {
            # the mean over the run, as pfml reports it
            "w2": lambda: statistics.fmean(row["w2"] for row in rows[1:] or rows),
            "utilization": lambda: geometry.utilization(
                unit_rows(test.query)[0], self._training_embeddings()
            ),
        }
        evaluated = [name for name in self.names if EXTRA_METRICS[name] == "evaluation"]
        metrics = {name: best["metrics"][name] for name in evaluated}
        metrics |= {name: function() for name, function in functions.items() if name in self.names}
        final = [name for name in self.names if EXTRA_METRICS[name] == "best"]
        return metrics | measure_embeddings(final, test, validation)

    def _regularizer(self) -> float:
        """Returns the regularizer of mean fields, without λ_MF (mft, Figures 5a and 5b)."""
        loss = getattr(self.method, "loss", None)
        if not isinstance(loss, MeanFieldLoss):
            raise UserError("evaluation.measures: regularizer needs a loss with mean fields")
        return float(loss.regularizer_value())

    def _w2(self) -> float:
        labeled = loss_proxies(getattr(self.method, "loss", None))
        if labeled is None:
            raise UserError("evaluation.measures: w2 needs a loss with proxies")
        proxies, labels = labeled
        embeddings, classes = self.training()
        points = unit_rows(proxies.to(embeddings.dtype))[0]
        return geometry.proxy_alignment(points, labels, unit_rows(embeddings)[0], classes)

    def _training_embeddings(self) -> Iterator[Tensor]:
        """Yields unit embeddings of the training images, and of the mixes of an epoch (Metrix)."""
        yield unit_rows(self.training()[0])[0]
        self.embedder.eval()
        yield from self.method.extra_embeddings(self.embedder, self.batches())


def measure_embeddings(
    names: Iterable[str], scored: SplitEmbeddings, validation: SplitEmbeddings | None = None
) -> dict[str, float]:
    """Returns the metrics that need embeddings alone; other names are left out.

    Args:
        names: of `evaluation.measures`.
        scored: embeddings of the images that are scored.
        validation: see `verification_errors`.
    """
    names = list(names)
    if not names:
        return {}
    queries, labels = unit_rows(scored.query)[0], scored.query_labels
    functions = {
        "covering_radius": lambda: covering_radius(scored.query, labels),
        "inter_class_distance": lambda: geometry.inter_class_distance(scored.query, labels),
        "alignment": lambda: geometry.alignment(queries, labels),
        "uniformity": lambda: geometry.uniformity(queries),
        "mrr_at_r": lambda: retrieval_metrics(
            *scored[:4], self_index=scored.self_index, reciprocal_rank=True
        )["mrr_at_r"],
    }
    metrics = {name: function() for name, function in functions.items() if name in names}
    metrics |= verification_errors(false_match_rates(names), scored, validation)
    agreement = [name for name in ("nmi", "ami") if name in names]
    return metrics | geometry.cluster_agreement(scored.query, labels, agreement)


def false_match_rates(names: Iterable[str]) -> dict[str, float]:
    """Returns metric → false match rate of the metrics `fnmr_at_fmr_…` among some names."""
    return {name: float(name.removeprefix(FNMR)) for name in names if name.startswith(FNMR)}


def verification_errors(
    rates: Mapping[str, float], scored: SplitEmbeddings, validation: SplitEmbeddings | None = None
) -> dict[str, float]:
    """Returns FNMR@FMR with the thresholds, which validation images choose if there are any.

    Args:
        rates: metric → false match rate.
        scored: embeddings of the images that are scored.
        validation: those of other images, which choose the thresholds; None: the scored images do.

    Returns:
        By metric its value on the scored images at the threshold that they choose themselves;
        `…_threshold`, a distance; and, with validation images, `…_test_fnmr` and `…_test_fmr`: the
        errors of the scored images at the threshold of the validation images.

    Raises:
        ValueError: there is no pair of the same class, or none of different classes.
    """
    if not rates:
        return {}
    points = scored.as_one_set()
    metrics = {}
    chosen = match_thresholds(*points, [*rates.values()])
    for name, errors in zip(rates, chosen, strict=True):
        metrics[name] = errors.fnmr
    if validation is None:
        for name, errors in zip(rates, chosen, strict=True):
            metrics[f"{name}{THRESHOLD}"] = errors.threshold
        return metrics
    try:
        validated = match_thresholds(*validation.as_one_set(), [*rates.values()])
    except ValueError as error:
        log.warning("evaluation.measures: no threshold of the validation images: %s", error)
        return metrics
    tested = match_errors_at(*points, [errors.threshold for errors in validated])
    for name, errors in zip(rates, tested, strict=True):
        metrics[f"{name}{THRESHOLD}"] = errors.threshold
        metrics[f"{name}{TEST_FNMR}"] = errors.fnmr
        metrics[f"{name}{TEST_FMR}"] = errors.fmr
    return metrics
