"""The models that a protocol trains, and the classes of each.

A protocol is a file of `configs/protocol`; the class splits that it can name are in
`dml.data.protocol_splits`, and listed in `dml.core.option_values`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.core.option_values import SPLITS, has_seen_classes
from dml.data.image_index import ImageIndex, Subset
from dml.data.image_names import take_images, texts_of
from dml.data.label_noise import LabelNoise, add_label_noise
from dml.data.protocol_splits import CLASS_FOLDS, assign_halves

FOLDS = {name: scheme.folds for name, scheme in SPLITS.items()}


@dataclass(frozen=True, eq=False)
class Split:
    """Queries and the gallery that they are ranked against; a key of dictionaries by identity.

    Attributes:
        query: the query images.
        gallery: the images to retrieve; None: the queries, each without itself.
    """

    query: Subset
    gallery: Subset | None = None

    @property
    def subsets(self) -> list[Subset]:
        """Query, then gallery if there is one."""
        return [self.query] if self.gallery is None else [self.query, self.gallery]

    @property
    def class_names(self) -> list[str]:
        """The names of the classes of all images, where users name them."""
        names = self.query.index.class_names
        labels = np.unique(np.concatenate([subset.classes for subset in self.subsets]))
        return [names[label] for label in labels if names]

    @property
    def names(self) -> list[list[str]]:
        """The paths of the images of each subset, or their numbers where there are no files."""
        every = self.query.index.files
        if every is None:
            return [[str(row) for row in subset.rows] for subset in self.subsets]
        return [[*texts_of(take_images(every, subset.rows))] for subset in self.subsets]


@dataclass(frozen=True)
class Job:
    """One model to train.

    Attributes:
        repeat, fold: its numbers, from 0.
        train: the training images.
        validation: the images on which the best epoch is selected.
        test: the images of the reported scores.
        noise: the label noise in `train`, if any.
    """

    repeat: int
    fold: int
    train: Subset
    validation: Split
    test: Split
    noise: LabelNoise | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Repeat and fold."""
        return self.repeat, self.fold

    @property
    def name(self) -> str:
        """Name of the job's folder."""
        return f"repeat{self.repeat}-fold{self.fold}"


def create_jobs(
    splits: str, repeats: int, index: ImageIndex, label_noise: float = 0.0, seed: int = 0
) -> list[Job]:
    """Returns all models of a run, in the order of their repeats.

    Args:
        splits: `published`: the published train and test classes, the epoch selected on test.
            `mlrc`: the first half of all classes in MLRC's four folds, the second half is tested
            (on In-Shop, the published classes). `ccp`: the published train classes in four folds,
            each class in validation once. `holdout`: one model on two thirds of them; with two or
            three classes, on the first two thirds of the images of each. `all`: one model on all
            classes, with nothing to validate or test on. `closed_set`: one model on the images for
            training of an index that `dml.data.closed_set` has divided.
        repeats: number of repetitions.
        index: the dataset.
        label_noise: share of the training images with a wrong label, 0 ≤ rate < 1.
        seed: of the noise, which differs between repeats and folds.

    Raises:
        UserError: there are no training images, too few classes for the folds, or no image has
            another one of its class to be retrieved.
    """
    index = assign_halves(splits, index)
    if not (index.roles == "train").any():
        raise UserError(
            f"data: '{index.name}' has no training images; add some with the split 'train', or "
            f"only score a network on these: {shell_command('evaluate')} run=<run folder> "
            f"data.root=<images>"
        )
    test = published_test(index)
    if splits != "all":
        _check_retrievable(test, "test", splits)
    jobs = []
    for repeat in range(repeats):
        for fold, (train, validation) in enumerate(_cut_folds(splits, index.subset("train"), test)):
            if validation is not test:
                _check_retrievable(validation, f"validation (fold {fold})", splits)
            noise = None
            if label_noise:
                noise_seed = np.random.SeedSequence([seed, repeat, fold]).generate_state(1)
                train, noise = add_label_noise(train, label_noise, int(noise_seed[0]))
            jobs.append(Job(repeat, fold, train, validation, test, noise))
    return jobs


def _check_retrievable(split: Split, part: str, splits: str) -> None:
    """Raises, before training, the error that the first evaluation would raise."""
    counts = np.bincount(split.query.index.labels[split.subsets[-1].rows])
    wanted = np.unique(split.query.index.labels[split.query.rows])
    least = 2 if split.gallery is None else 1  # an image does not retrieve itself
    if not (counts[wanted[wanted < len(counts)]] >= least).any():
        advice = "give a class there more images"
        if has_seen_classes(splits):
            share = f"protocol.{part.split()[0]}_share"
            advice = f"a larger {share} takes more of the images of each class"
        raise UserError(
            f"data: no image of '{split.query.index.name}' for {part} has another of its class to "
            f"be found; {advice}"
        )


def _cut_folds(splits: str, train: Subset, test: Split) -> list[tuple[Subset, Split]]:
    """Returns the training and the validation images of each fold."""
    if has_seen_classes(splits):
        return [(train, Split(train.index.subset("validation")))]
    if splits not in CLASS_FOLDS:
        return [(train, test)]
    if splits == "holdout" and 2 <= train.num_classes < 4:  # one class would always score 100
        classes = [np.flatnonzero(train.labels == label) for label in range(train.num_classes)]
        held = np.concatenate([rows[-max(2, len(rows) // 3) :] for rows in classes])
        kept = Subset(train.index, np.delete(train.rows, held))
        return [(kept, Split(Subset(train.index, train.rows[held])))]
    if train.num_classes < 4:
        least = 2 if splits == "holdout" else 4
        raise UserError(
            f"protocol: '{train.index.name}' has {train.num_classes} training classes; {least} are "
            f"needed, since some are set apart for validation. Take more classes, or "
            f"protocol=traditional, which selects the epoch on the test classes"
        )
    folds = CLASS_FOLDS[splits](train.num_classes)
    assert len(folds) == FOLDS[splits]
    return [(train.of_classes(some), Split(train.of_classes(rest))) for some, rest in folds]


def validates_one_class(job: Job) -> bool:
    """Returns True if every validation score of a model is 100, whatever the network."""
    return job.validation is not job.test and job.validation.query.num_classes == 1


def published_test(index: ImageIndex) -> Split:
    """Returns the test images of the dataset: query against gallery if it has them."""
    if (index.roles == "query").any():
        return Split(index.subset("query"), index.subset("gallery"))
    return Split(index.subset("test"))


def trained_classes(splits: str, index: ImageIndex) -> list[str]:
    """Returns the names of the classes that a protocol trains on or selects an epoch on."""
    return assign_halves(splits, index).names_of("train")


def protocol_test(splits: str, index: ImageIndex) -> Split:
    """Returns the test images of a protocol.

    Raises:
        UserError: there are none.
    """
    if splits == "all":
        if index.own_split and not (index.roles == "train").any():
            return published_test(index)  # other images than those of the training
        raise UserError("run: it was trained on all classes, so that no images are left to score")
    return published_test(assign_halves(splits, index))
