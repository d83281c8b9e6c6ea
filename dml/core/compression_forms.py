"""Names of the forms in which vectors are stored in fewer bytes: `evaluation.compress`.

A form is a reduction of the dimensions (`pca128`, `project128`, `truncate64`), a type of the stored
numbers (`float16`, `int8`, `binary`), or both (`pca128+int8`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dml.core.errors import nearest

PCA, PROJECT, TRUNCATE = "pca", "project", "truncate"
REDUCTIONS = (PCA, PROJECT, TRUNCATE)
FITTED = (PCA, PROJECT)  # reductions by principal components
FLOAT32, FLOAT16, INT8, BINARY = "float32", "float16", "int8", "binary"
TYPES = (FLOAT16, INT8, BINARY)
CHOICES = (
    "pca<N>, project<N>, truncate<N>, float16, int8, binary, or two of them as project<N>+int8"
)
EXAMPLE = "128"  # a size for suggestions where the text has none
NAME = re.compile(r"(?:(pca|project|truncate)([1-9][0-9]{0,8}))?(\+)?(float16|int8|binary)?")
BITS = {FLOAT32: 32, FLOAT16: 16, INT8: 8, BINARY: 1}  # of a stored number


class CompressionForm(NamedTuple):
    """A form of stored vectors.

    Attributes:
        name: as it was asked for.
        reduction: `pca`, `project`, `truncate`, or None for all dimensions.
        size: dimensions after the reduction; None for all.
        type: of the stored numbers: float32, float16, int8 or binary.
    """

    name: str
    reduction: str | None
    size: int | None
    type: str

    @property
    def is_float(self) -> bool:
        """Whether the stored numbers are the coordinates themselves."""
        return self.type in (FLOAT32, FLOAT16)

    def count_bytes(self, dimensions: int) -> int:
        """Returns the bytes of a stored vector of so many dimensions before the reduction."""
        stored = self.size or dimensions
        return -(-stored * BITS[self.type] // 8)


def parse_form(name: str) -> CompressionForm:
    """Returns the form of a name.

    Raises:
        ValueError: there is no such form; the message, which begins after the name, lists the
            forms and suggests the nearest.
    """
    match = NAME.fullmatch(name)
    reduction, size, plus, type = match.groups() if match else (None,) * 4
    has_both = reduction is not None and type is not None
    has_any = reduction is not None or type is not None
    if not has_any or has_both != (plus is not None):
        raise ValueError(f"is none of {CHOICES}{nearest(name, _examples(name))}")
    return CompressionForm(name, reduction, int(size) if size else None, type or FLOAT32)


def _examples(name: str) -> list[str]:
    """Returns forms with the size that a text names."""
    numbers = re.findall(r"(?<!int)(?<!float)[1-9][0-9]*", name)
    size = numbers[0] if numbers else EXAMPLE
    examples = [*TYPES]
    for reduction in REDUCTIONS:
        examples.append(f"{reduction}{size}")
        examples += [f"{reduction}{size}+{type}" for type in TYPES]
    return examples
