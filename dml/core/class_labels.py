"""Class labels of any type, from arrays of other software: checked, and compared exactly.

Labels are whole numbers or texts. NumPy would join arrays of different types first: int64 and
uint64 become float64, in which 2⁵³ and 2⁵³ + 1 are one number. Here each array is reduced to its
distinct values, which Python compares exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

ADVICE = {
    "labels": "store texts as numpy.array(labels, dtype=str), numbers as integers",
    "self_index": "store it as numpy.array(self_index, dtype='int64')",
}


def check_class_labels(labels: np.ndarray, name: str) -> np.ndarray:
    """Returns labels of whole numbers as they are, and bytes and Python's texts as texts.

    Args:
        labels: integers, booleans, whole floating-point numbers, texts, UTF-8 bytes, or objects
            that are all texts or all bytes.
        name: of the array, for messages.

    Raises:
        ValueError: a label is missing (NaN, None), is no whole number, may have been rounded to the
            precision of its type, or is of another type.
    """
    if labels.dtype.kind in "biuU":
        return labels
    if labels.dtype.kind == "f":
        _check_whole_numbers(labels, name)
        return labels
    if labels.dtype.kind in "SOT":
        return _decode(labels.astype(object), name)
    raise ValueError(f"{name}: {labels.dtype} cannot name classes; {ADVICE['labels']}")


def _check_whole_numbers(labels: np.ndarray, name: str) -> None:
    finite = np.isfinite(labels)
    missing = int((~finite).sum())
    if missing:
        raise ValueError(
            f"{name}: {missing} of {labels.size} are NaN or infinite; leave out these rows, or "
            f"give them a class"
        )
    fractions = labels[labels != np.floor(labels)]
    if fractions.size:
        raise ValueError(f"{name}: {fractions.flat[0]} is not a whole number; store integers")
    largest = 2 ** (np.finfo(labels.dtype).nmant + 1)  # all whole numbers up to it are exact
    if (np.abs(labels) >= largest).any():
        raise ValueError(
            f"{name}: {labels.dtype} holds whole numbers exactly below {largest} only; store "
            f"integers"
        )


def _decode(labels: np.ndarray, name: str) -> np.ndarray:
    """Returns bytes, or objects that are texts or bytes, as texts."""
    from pandas import isna  # imported late: few arrays have objects

    missing = int(isna(labels).sum())
    if missing:
        raise ValueError(
            f"{name}: {missing} of {labels.size} are missing; leave out these rows, or give them "
            f"a class"
        )
    values = labels.ravel().tolist()
    if all(isinstance(value, bytes) for value in values):
        try:
            values = [value.decode() for value in values]
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}: bytes that are not UTF-8; {ADVICE['labels']}") from error
    elif not all(isinstance(value, str) for value in values):
        names = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(f"{name}: objects of type {names}; {ADVICE['labels']}")
    return np.array(values, dtype=str).reshape(labels.shape)


def number_classes(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the classes 0..C−1 of arrays of labels (int64), in the order of their labels.

    Numbers of all types are compared by value (the booleans are 0 and 1), texts and bytes as texts.

    Args:
        arrays: labels by the name of their array, for messages.

    Raises:
        ValueError: labels that `check_class_labels` refuses, or numbers in one array and texts in
            another.
    """
    checked = {name: check_class_labels(labels, name) for name, labels in arrays.items()}
    _check_alike(checked)
    parts = [np.unique(labels, return_inverse=True) for labels in checked.values()]
    distinct: set[int | float | str] = set()
    for values, _ in parts:
        distinct.update(values.tolist())
    numbers = {value: number for number, value in enumerate(sorted(distinct))}
    numbered = []
    for labels, (values, inverse) in zip(checked.values(), parts, strict=True):
        numbers_of_values = np.array([numbers[value] for value in values.tolist()], dtype=np.int64)
        numbered.append(numbers_of_values[inverse].reshape(labels.shape))
    return numbered


def _check_alike(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError if some arrays of labels have numbers and others texts."""
    kinds = {}
    for name, labels in arrays.items():
        if labels.size:
            kinds[name] = "texts" if labels.dtype.kind == "U" else "numbers"
    if len(set(kinds.values())) > 1:
        names = ", ".join(f"{name} are {kind}" for name, kind in kinds.items())
        raise ValueError(f"{names}; store both as numbers or both as texts")


def check_names(names: Iterable[str]) -> None:
    """Checks that no name among numbers is `nan`, as software writes a missing number.

    Raises:
        ValueError: all other names are numbers.
    """
    known = set(names)
    missing = {name for name in known if name.lower() == "nan"}
    others = known - missing
    if missing and others and all(_is_number(name) for name in others):
        raise ValueError(
            f"a label is '{min(missing)}' where all others are numbers; give it a class"
        )


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
