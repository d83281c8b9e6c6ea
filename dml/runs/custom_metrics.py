"""Metrics of the user, `evaluation.metrics`: a function or class for each, with its arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from dml.config.constructor import Constructor
from dml.config.signatures import accepted_parameters, import_target
from dml.core.errors import ConfigError, describe_failure
from dml.data.augmentations import describe_difference
from dml.data.generators import seeded
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.console import print_line

OF_GALLERY = ("gallery_embeddings", "gallery_labels", "self_index")
BEST_ONLY = "best_only"  # key of a node: not at every evaluation, but of the best network
CLASSES, PER_CLASS = 4, 8  # of the embeddings on which a metric is tried


class CustomMetric:
    """A metric of the user.

    It is called with embeddings B×D and labels B (tensors on the CPU, integers 0…), and by name
    with those of `gallery_embeddings` N×D, `gallery_labels` N and `self_index` B that it accepts,
    which are as for `dml.retrieval.retrieval_metrics`: None where the queries are the gallery. It
    returns a number, or several by name. Random numbers that it draws have one seed.

    Args:
        name: of the column; with several numbers, the beginning of the columns.
        node: with `_target_`, arguments, and perhaps `best_only`.

    Attributes:
        problems: one line per option that does not fit.
    """

    def __init__(self, name: str, node: Mapping[str, Any]) -> None:
        self.name, self.option = name, f"evaluation.metrics.{name}"
        self.best_only = bool(node.get(BEST_ONLY, False))
        arguments = {key: value for key, value in node.items() if key != BEST_ONLY}
        supplied: list[str] = []
        try:
            target: Any = import_target(arguments["_target_"], self.option)
            if not inspect.isclass(target):
                arguments["_partial_"] = True
                supplied = [*list(accepted_parameters(target))[:2], *OF_GALLERY]
        except ConfigError:
            pass  # it is among the problems
        self._constructor = Constructor(
            arguments, self.option, supplied, Callable, "a metric, which can be called"
        )
        self.problems = self._constructor.problems
        self._function: Callable[..., Any] | None = None
        self._noted = False

    def score(self, embeddings: SplitEmbeddings) -> dict[str, float]:
        """Returns the numbers of embeddings; none, with a note, where the metric fails."""
        try:
            numbers = self._read(self._call(embeddings))
        except Exception as error:  # of any class: it may be the user's
            return self._leave_out(f"raised {describe_failure(error)}")
        if not all(map(math.isfinite, numbers.values())):
            return self._leave_out("returned a number that is not finite")
        return numbers

    def _leave_out(self, reason: str) -> dict[str, float]:
        if not self._noted:
            print_line(f"note: {self.option}: it {reason}; its numbers are left out")
        self._noted = True
        return {}

    def check(self, dimensions: int, has_gallery: bool, select: str = "") -> Iterator[str]:
        """Tries the metric on random embeddings.

        A ValueError may be due to these, and is left to the first evaluation.

        Args:
            dimensions: of an embedding.
            has_gallery: whether the images of the run have a gallery.
            select: the metric that selects the best epoch.

        Yields:
            Notes on numbers that differ between two calls, and on a gallery that it does not get.

        Raises:
            ConfigError: it fails, or returns something else than numbers.
        """
        made = _random_embeddings(dimensions, has_gallery)
        try:
            first, second = (self._read(self._call(made)) for _ in range(2))
        except ConfigError:
            raise
        except ValueError:
            return
        except Exception as error:  # of any class: it may be the user's
            reason = f"raised {describe_failure(error)}"
            called = "called as metric(embeddings, labels)"
            raise ConfigError([f"{self.option}: it {reason}, {called}"]) from error
        if select == self.name:
            self._check_selection(first)
        if not _are_equal(first, second):
            yield describe_difference(self.option)
        if has_gallery and not self._gallery_arguments():
            yield (
                f"{self.option}: it gets the queries alone; the gallery is passed to arguments "
                f"named gallery_embeddings, gallery_labels and self_index"
            )

    def _check_selection(self, numbers: Mapping[str, float]) -> None:
        """Raises ConfigError if a metric that selects the best epoch has other columns."""
        if self.name not in numbers:
            names = " | ".join(numbers) or "no numbers at all"
            raise ConfigError([f"protocol.select_metric: {self.name} has several columns: {names}"])

    def _gallery_arguments(self) -> list[str]:
        """Returns which of `OF_GALLERY` the metric accepts."""
        accepted = accepted_parameters(self._build())
        return [name for name in OF_GALLERY if name in accepted]

    def _build(self) -> Callable[..., Any]:
        if self._function is None:
            self._function = self._constructor()
        return self._function

    def _call(self, embeddings: SplitEmbeddings) -> Any:
        # The metric gets copies: what it writes into them would change pictures and other metrics.
        parts = [None if part is None else part.cpu().clone() for part in embeddings]
        gallery = dict(zip(OF_GALLERY, parts[2:], strict=True))
        accepted = {name: gallery[name] for name in self._gallery_arguments()}
        with seeded(0), torch.no_grad():
            return self._build()(parts[0], parts[1], **accepted)

    def _read(self, result: Any) -> dict[str, float]:
        """Returns the numbers of a result by the names of their columns.

        Raises:
            ConfigError: it is something else.
        """
        if isinstance(result, Mapping):
            return {f"{self.name}_{key}": self._number(value) for key, value in result.items()}
        return {self.name: self._number(result)}

    def _number(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: of a tensor
            kind = type(value).__name__
            problem = f"must return a number, or a mapping of names to numbers; returned {kind}"
            raise ConfigError([f"{self.option}: {problem}"]) from None


def score_all(
    metrics: Iterable[CustomMetric], embeddings: SplitEmbeddings, is_final: bool
) -> dict[str, float]:
    """Returns the numbers of metrics; of those with `best_only` for the final network alone."""
    numbers: dict[str, float] = {}
    for metric in metrics:
        if is_final or not metric.best_only:
            numbers |= metric.score(embeddings)
    return numbers


def _are_equal(first: Mapping[str, float], second: Mapping[str, float]) -> bool:
    """Returns whether two calls gave the same numbers, up to rounding."""
    if first.keys() != second.keys():
        return False
    in_order = [second[name] for name in first]
    return np.allclose([*first.values()], in_order, rtol=1e-6, equal_nan=True)


def _random_embeddings(dimensions: int, has_gallery: bool) -> SplitEmbeddings:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    points = F.normalize(torch.randn(2, len(labels), dimensions, generator=generator), dim=-1)
    if not has_gallery:
        return SplitEmbeddings(points[0], labels)
    return SplitEmbeddings(points[0], labels, points[1], labels, torch.full_like(labels, -1))
