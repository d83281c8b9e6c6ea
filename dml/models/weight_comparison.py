"""Comparison of two files of weights, tensor by tensor, under the names that the loader uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from dml.core.errors import UserError
from dml.models.npz_weights import NPZ, read_npz
from dml.models.weights import find_weights, read_state_dict

# Modules that are a classifier in published files; a backbone has none.
CLASSIFIERS = ("fc", "last_linear", "new_fc", "head", "head_dist", "classifier", "head.fc")
SHOWN = 5  # names of a kind


@dataclass
class Comparison:
    """What differs between two files of weights.

    Attributes:
        compared: tensors that both files have, with equal shapes.
        equal: those among them whose values are equal bit for bit.
        largest: the largest absolute difference of two values; infinite if only one is NaN.
        name: of the tensor with this difference.
        only_first: names that only the first file has.
        only_second: names that only the second file has.
        shapes: names of different shapes, each with both.
        classifiers: names that were left out.
    """

    compared: int = 0
    equal: int = 0
    largest: float = 0.0
    name: str = ""
    only_first: list[str] = field(default_factory=list)
    only_second: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    classifiers: list[str] = field(default_factory=list)

    def describe(self) -> Iterator[str]:
        """Yields the lines of a report."""
        yield f"{self.compared} tensors compared, {self.equal} of them equal bit for bit"
        largest = f"largest absolute difference: {self.largest:.9g}"
        yield f"{largest} in {self.name}" if self.name else largest
        yield f"only in the first: {_list(self.only_first)}"
        yield f"only in the second: {_list(self.only_second)}"
        yield f"other shapes: {_list(self.shapes)}"
        yield f"left out as a classifier: {_list(self.classifiers)}"


def compare_files(first: str, second: str) -> Comparison:
    """Compares two files of weights.

    Prefixes of data parallelism, Lightning and TSM are removed and the classifier is left out, as
    for `backbone.weights`; vectors of n numbers and of 1×n are the same.

    Args:
        first: `.pth`, `.safetensors` or `.npz`, a file or an http(s) URL; code is never unpickled.
        second: another one.

    Raises:
        UserError: a file cannot be read, or they have no tensor in common.
    """
    comparison = Comparison()
    states = []
    for file in (first, second):
        state, classifiers = _split_classifier(_read(find_weights(file)))
        states.append(state)
        comparison.classifiers += [n for n in classifiers if n not in comparison.classifiers]
    ours, theirs = states
    comparison.only_first = sorted(ours.keys() - theirs.keys())
    comparison.only_second = sorted(theirs.keys() - ours.keys())
    for name, value in ours.items():
        if name in theirs:
            _compare(comparison, name, value, theirs[name])
    if not comparison.compared:
        raise UserError(
            f"--compare: {first} and {second} have no tensor in common; the first has "
            f"{_list(list(ours))}, the second {_list(list(theirs))}"
        )
    return comparison


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix != NPZ:
        return read_state_dict(path)
    try:
        return read_npz(path)
    except ValueError as error:
        raise UserError(f"--compare: {path} is {error}") from error


def _split_classifier(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Returns the tensors of the backbone, and the names of the others."""
    kept = {}
    left_out = []
    for name, value in state.items():
        module = name.replace("/", ".").rpartition(".")[0]
        if module in CLASSIFIERS:
            left_out.append(name)
        else:
            kept[name] = value
    return kept, left_out


def _compare(comparison: Comparison, name: str, first: Tensor, second: Tensor) -> None:
    """Adds a tensor of both files to a comparison."""
    if first.shape == (1, *second.shape):
        first = first[0]
    if second.shape == (1, *first.shape):
        second = second[0]
    if first.shape != second.shape:
        comparison.shapes.append(f"{name} {[*first.shape]} and {[*second.shape]}")
        return
    comparison.compared += 1
    a, b = first.to(torch.float64), second.to(torch.float64)
    both_nan = a.isnan() & b.isnan()
    differences = torch.where((a == b) | both_nan, 0.0, (a - b).abs())
    differences = differences.nan_to_num(nan=torch.inf, posinf=torch.inf)
    largest = differences.max().item() if differences.numel() else 0.0
    if not largest:
        comparison.equal += first.dtype == second.dtype
    if largest > comparison.largest:
        comparison.largest, comparison.name = largest, name


def _list(names: list[str]) -> str:
    """Returns the first names of a list and the number of the others; `none` of an empty one."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "none"
