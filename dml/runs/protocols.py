"""Which models a protocol trains, on which classes, and how their scores combine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.core.option_values import SPLITS
from dml.core.statistics import mean_interval
from dml.data.base import ImageIndex, Subset
from dml.data.noise import LabelNoise, with_label_noise
from dml.data.splits import ccp_folds, halved, mlrc_folds, single_split
from dml.runs.scores.evaluator import Split

FOLDS = {name: scheme.folds for name, scheme in SPLITS.items()}


@dataclass(frozen=True)
class Job:
    """One model to train.

    Attributes:
        repeat, fold: which one, from 0.
        train: what it is trained on.
        validation: what its best epoch is picked on.
        test: what it is reported on.
        noise: what was done to the labels of `train`, if anything.
    """

    repeat: int
    fold: int
    train: Subset
    validation: Split
    test: Split
    noise: LabelNoise | None = None

    @property
    def name(self) -> str:
        """Folder name of the job."""
        return f"repeat{self.repeat}-fold{self.fold}"


def jobs(
    splits: str, repeats: int, index: ImageIndex, label_noise: float = 0.0, seed: int = 0
) -> list[Job]:
    """All models of a run, in the order of their repeats.

    Args:
        splits: `published`: the dataset's own train and test classes, the epoch picked on test.
            `mlrc`: the first half of all classes in MLRC's four folds, the second half is tested
            (In-Shop keeps its own halves). `ccp`: the published train classes in four folds of
            which every class validates once. `holdout`: one model on two thirds of them.
        repeats: how many times the whole is done.
        index: the dataset.
        label_noise: share of the training images that carry a wrong label, 0 ≤ rate < 1.
        seed: of the noise; each repeat and fold draws its own.

    Raises:
        UserError: too few classes for the folds, or images none of which has another of its class
            to be found.
    """
    if splits not in FOLDS:
        raise ValueError(f"splits: no '{splits}'; valid are {', '.join(FOLDS)}")
    if splits == "mlrc":
        index = halved(index)
    test = published_test(index)
    _refuse_unscorable(test, "test")
    found = []
    for repeat in range(repeats):
        for fold, (train, validation) in enumerate(_folds(splits, index.subset("train"), test)):
            _refuse_unscorable(validation, f"validation (fold {fold})")
            noise = None
            if label_noise:
                noise_seed = np.random.SeedSequence([seed, repeat, fold]).generate_state(1)
                train, noise = with_label_noise(train, label_noise, int(noise_seed[0]))
            found.append(Job(repeat, fold, train, validation, test, noise))
    return found


def _refuse_unscorable(split: Split, part: str) -> None:
    """Says before hours of training what the first evaluation would only say after them."""
    counts = np.bincount(split.query.index.labels[split.subsets[-1].rows])
    wanted = np.unique(split.query.index.labels[split.query.rows])
    least = 2 if split.gallery is None else 1  # an image does not find itself
    if not (counts[wanted[wanted < len(counts)]] >= least).any():
        raise UserError(
            f"data: no image of '{split.query.index.name}' for {part} has another of its class to "
            f"be found; give a class there more images"
        )


def _folds(splits: str, train: Subset, test: Split) -> list[tuple[Subset, Split]]:
    """Per fold what is trained on and what is validated on."""
    if splits == "published":
        return [(train, test)]
    parts = {"mlrc": mlrc_folds, "ccp": ccp_folds, "holdout": lambda n: [single_split(n)]}
    try:
        folds = parts[splits](train.num_classes)
    except ValueError as error:
        raise UserError(
            f"protocol: '{train.index.name}' has {train.num_classes} training classes, too few to "
            f"set some apart for validation; take other data, or protocol=traditional"
        ) from error
    return [(train.of_classes(some), Split(train.of_classes(rest))) for some, rest in folds]


def notes(found: Sequence[Job]) -> Iterator[str]:
    """What is allowed but worth knowing before a score is believed."""
    small = [job for job in found if job.validation is not job.test and _validates_one_class(job)]
    if small:
        yield (
            f"{small[0].train.index.name} leaves {len(small)} of {len(found)} models one class to "
            f"validate on, where every score is 100: their epoch is the first that was evaluated"
        )


def _validates_one_class(job: Job) -> bool:
    return job.validation.query.num_classes == 1


def searchable(found: Sequence[Job]) -> None:
    """Refuses a search over scores that cannot differ.

    Raises:
        UserError: no model has two classes to validate on.
    """
    if all(_validates_one_class(job) for job in found):
        raise UserError(
            f"search: '{found[0].train.index.name}' leaves one class to validate on, where every "
            f"score is 100; take data with more classes"
        )


def published_test(index: ImageIndex) -> Split:
    """The dataset's own test: query against gallery if it has them, else the test images."""
    if (index.roles == "query").any():
        return Split(index.subset("query"), index.subset("gallery"))
    return Split(index.subset("test"))


def tested_split(splits: str, index: ImageIndex) -> Split:
    """What the models of a protocol are tested on."""
    return published_test(halved(index) if splits == "mlrc" else index)


def by_repeat(found: Sequence[Job]) -> list[list[Job]]:
    """The jobs of each repeat, which are the folds of one ensemble."""
    return [
        [job for job in found if job.repeat == repeat]
        for repeat in sorted({job.repeat for job in found})
    ]


def combine(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean over the folds of each repeat, then mean and 95 % t-interval over repeats.

    Args:
        results: per job `repeat` and `metrics`.

    Returns:
        Per metric `mean`, `ci95` (half-width) and `std` (both None for one repeat), and `repeats`.
    """
    folds_of: dict[int, list[dict[str, float]]] = {}
    for result in results:
        folds_of.setdefault(result["repeat"], []).append(result["metrics"])
    combined = {}
    for name in results[0]["metrics"]:
        values = [sum(m[name] for m in folds) / len(folds) for folds in folds_of.values()]
        mean, half = mean_interval(values)
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        combined[name] = {"mean": mean, "ci95": half, "std": std, "repeats": len(values)}
    return combined
