"""Names of folders with a meaning: splits, and what disks, archives and photo servers make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# Names are compared in lower case.
SYSTEM_FOLDERS = {
    "__macosx",  # archives made by macOS
    "network trash folder",
    "temporary items",
    "@eadir",  # Synology
    "#recycle",
    "#snapshot",
    "@recycle",  # QNAP
    "@recently-snapshot",
    "@__thumb",
    "@sharebin",
    "$recycle.bin",  # Windows
    "system volume information",
    "found.000",
    "lost+found",  # Linux
    "lost.dir",  # Android
    "__pycache__",
}
VALIDATION = "val"
SPLIT_WORDS = {
    **dict.fromkeys(("train", "trains", "training", "trn"), "train"),
    **dict.fromkeys(("test", "tests", "testing", "tst"), "test"),
    **dict.fromkeys(("val", "vals", "valid", "validation", "validate"), VALIDATION),
    **dict.fromkeys(("dev", "eval", "evaluation", "holdout"), VALIDATION),
    **dict.fromkeys(("query", "queries"), "query"),
    **dict.fromkeys(("gallery", "galleries"), "gallery"),
}
FOLDERS_OF_IMAGES = {"images", "image", "imgs", "img", "jpg", "jpeg", "jpegs", "photos", "pictures"}
FEW = 3  # folders that hold folders: one that is called as a split is one
LAYOUT = "train/<class>/<image> and test/<class>/<image>"


class SplitName(NamedTuple):
    """The name of a folder, or a value in a CSV file, that names a split.

    Attributes:
        split: train | test | val | query | gallery.
        rest: the other words of the name: `cars` of `cars_train`.
    """

    split: str
    rest: str


def is_system_folder(name: str) -> bool:
    """Returns whether a folder is of a disk, an archive or a photo server, or hidden."""
    if name.startswith(".") or name == "RECYCLER":  # Windows; in lower case it may be a class
        return True
    return name.lower() in SYSTEM_FOLDERS


def parse_split(name: str) -> SplitName | None:
    """Returns the split that a name means in any spelling; None: no split.

    The first or the last word must be a split: `Test`, `cars_train`, `images-test`, `train2017`,
    `trainset`; `trainer`, `bullet trainers` and `testosterone` are none.
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)  # carsTrain
    words = [word for word in re.split(r"[\W_\d]+", spaced.lower()) if word]
    if not words:
        return None
    for position in (0, -1):
        word = words[position]
        split = SPLIT_WORDS.get(word) or SPLIT_WORDS.get(word.removesuffix("set"))
        if split is not None:
            del words[position]
            return SplitName(split, " ".join(words))
    return None


class Splits(NamedTuple):
    """How the top folders of a dataset are read.

    Attributes:
        roles: folder → split, if they are splits; else empty: they are classes.
        problem: why they can be neither; empty: they can.
    """

    roles: dict[str, str]
    problem: str = ""


def find_splits(folders: Mapping[str, bool]) -> Splits:
    """Decides whether the top folders of a dataset are splits or classes, by all of them together.

    A class may be called `train` beside other classes. Folders are splits if at least two different
    splits are among them, they have folders of classes or the other words of their names agree
    (`cars_train`, `cars_test`), and they are not a few among many folders of the same form.

    Args:
        folders: name → whether its images are in folders below it (classes, if it is a split).
    """
    named: dict[str, SplitName] = {}
    others: list[str] = []
    for name in sorted(folders):
        split = parse_split(name)
        if split is None:
            others.append(name)
        else:
            named[name] = split
    roles = {name: split.split for name, split in named.items()}
    if len(set(roles.values())) < 2:
        return _read_single(folders, named)
    if _are_classes(folders, named, others):
        return Splits({})
    return Splits(roles, _find_problem(folders, roles, others))


def find_missing_classes(folders: Iterable[tuple[str, ...]], level: int) -> str:
    """Returns why folders in the place of classes are none; empty: they can be classes.

    Copies have folders twice (`cars_train/cars_train/<image>`), one for all images of a split
    (`train/images/<image>`), or one around the splits (`data/train/<class>/<image>`).

    Args:
        folders: of each image, the names of the folders in between.
        level: number of folders above those of classes: 1 below splits, else 0.
    """
    tops: dict[str, set[str]] = {}
    below: dict[str, bool] = {}
    for names in folders:
        if len(names) > 1:
            tops.setdefault(names[0], set()).add(names[1])
            below[names[1]] = len(names) > 2
    if level:
        for split, classes in sorted(tops.items()):
            name = next(iter(classes))
            if len(classes) == 1 and _holds_all_images(name, split):
                return (
                    f"the folder '{split}/{name}' holds images without folders of classes; "
                    f"expected {LAYOUT}"
                )
    elif len(tops) == 1 and (splits := find_splits(below).roles):
        return (
            f"the only folder '{next(iter(tops))}' holds splits ({', '.join(splits)}); data.root "
            f"must be the folder of {LAYOUT}"
        )
    return ""


def _holds_all_images(name: str, split: str) -> bool:
    """Returns whether the only folder in a split is no class: `cars_train` or `images`."""
    if name.lower() in FOLDERS_OF_IMAGES:
        return True
    named, above = parse_split(name), parse_split(split)
    if named is None or above is None or named.split != above.split:
        return False
    return named.rest in ("", above.rest, *FOLDERS_OF_IMAGES)  # and no class `test tubes`


def _find_problem(
    folders: Mapping[str, bool], roles: Mapping[str, str], others: Sequence[str]
) -> str:
    """Returns why splits cannot be read; empty: they can."""
    if others:
        named = ", ".join(roles)
        return f"the folder '{others[0]}' is next to splits ({named}): rename it, or move it out"
    first: dict[str, str] = {}
    for name, split in roles.items():
        if not folders[name]:
            return f"the folder '{name}' is a split without folders of classes; expected {LAYOUT}"
        other = first.setdefault(split, name)
        if other != name:
            return f"the folders '{other}' and '{name}' are both the split {split}; leave one"
    return ""


def _read_single(folders: Mapping[str, bool], named: Mapping[str, SplitName]) -> Splits:
    """Decides about folders of which at most one split is named: a single one holds no classes."""
    if not named:
        return Splits({})
    if len(folders) == 1:
        ((name, split),) = named.items()
        problem = f"the folder '{name}' is the only split; expected {LAYOUT}, or <class>/<image>"
        return Splits({name: split.split}, problem)
    bare = [name for name, split in named.items() if not split.rest]
    holds_classes = all(folders.values()) and len(folders) <= FEW
    if bare and holds_classes:
        others = ", ".join(name for name in folders if name != bare[0])
        problem = (
            f"the folder '{bare[0]}' is a split, and {others} is none that is known; expected "
            f"{LAYOUT}, or <class>/<image> without folders in between"
        )
        return Splits({name: split.split for name, split in named.items()}, problem)
    return Splits({})


def _are_classes(
    folders: Mapping[str, bool], named: Mapping[str, SplitName], others: Sequence[str]
) -> bool:
    """Returns whether folders that are called as splits are classes beside many others."""
    if all(folders[name] for name in named):  # they hold folders
        alike = all(folders[name] for name in others)
        return alike and len(others) > 2 * len(named)
    rests = [split.rest for split in named.values()]
    different = set(rests)
    # cars_train and cars_test, or train_a, train_b, test_a and test_b
    agree = len(different - {""}) < 2 or len(different) < len(rests)
    return not agree or len(others) > len(named)


def place_validation(splits: Iterable[str]) -> tuple[str, str]:
    """Returns the role of validation images, and a note.

    A protocol takes its validation classes from the training classes, and a test must not hold
    images that were meant for the selection of an epoch. So validation images are the test where
    there is no other, and otherwise left out.

    Args:
        splits: all splits of a dataset.
    """
    if {"test", "query", "gallery"}.intersection(splits):
        return "unused", (
            "is left out: protocols take validation classes from the training classes; to train "
            "on it, move it to train"
        )
    return "test", "is read as the test split, since there is no other"
