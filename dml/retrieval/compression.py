"""Vectors in fewer bytes: projected, cut, rounded, or reduced to their signs.

A form (`dml.core.compression_forms`) is fitted on some vectors and stores others as codes. Queries
are projected or cut as the stored vectors, but never rounded: a float32 query is compared with the
decoded codes. `dml.retrieval.compressed_search` searches in codes.

Shapes: B vectors, D dimensions before and C after the reduction, P numbers of a code (C, or ⌈C/8⌉
bytes of signs).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dml.core.compression_forms import (
    BINARY,
    FITTED,
    FLOAT16,
    INT8,
    PCA,
    PROJECT,
    CompressionForm,
    parse_form,
)

Floats = NDArray[np.float32]
FITTED_ROWS = 50_000  # evenly spaced, by which a form is fitted
UNIT = 1e-2  # largest difference of a length from 1: float16 has three digits
LEVELS = 255  # of int8, above the lowest
SMALLEST = np.finfo(np.float32).eps  # of a coordinate relative to others: rounding is below it
LARGEST = 1e18  # of a number, whose square float32 holds
PARAMETERS = ("mean", "components", "low", "step")


@dataclass(frozen=True)
class Compression:
    """A form with what was fitted, by which vectors become codes and codes vectors.

    Attributes:
        form: what is stored.
        dimensions: D.
        is_unit: whether vectors have length 1; then those of fewer dimensions get it again.
        fitted_on: description of the vectors by which it was fitted.
        mean: D, which is subtracted before `components`; None without these.
        components: C×D, principal directions, of `pca` divided by the standard deviations along
            them; None for other reductions.
        low, step: C each, of int8: the code c stands for low + c·step.
    """

    form: CompressionForm
    dimensions: int
    is_unit: bool
    fitted_on: str
    mean: Floats | None = None
    components: Floats | None = None
    low: Floats | None = None
    step: Floats | None = None

    @classmethod
    def fit(cls, name: str, points: NDArray[Any], fitted_on: str) -> Self:
        """Returns a form fitted on vectors.

        Args:
            name: of the form.
            points: B×D; of more than 50,000 rows so many count, evenly spaced.
            fitted_on: description of them.

        Raises:
            ValueError: there is no such form, it has more dimensions than the vectors or than they
                vary in, or vectors are not finite or too large.
        """
        form = parse_form(name)
        sample = _sample(points)
        dimensions = sample.shape[1]
        if form.size is not None and form.size > dimensions:
            raise ValueError(f"{name}: the vectors have {dimensions} dimensions; use at most these")
        lengths = np.linalg.norm(sample, axis=1)
        is_unit = bool((np.abs(lengths - 1) < UNIT).all())
        mean, components, low, step = None, None, None, None
        if form.reduction in FITTED:
            mean, components = _fit_pca(sample, form)
        reduced = cls(form, dimensions, is_unit, fitted_on, mean, components)
        if form.type == INT8:
            low, step = _fit_ranges(reduced.reduce(sample))
        return cls(form, dimensions, is_unit, fitted_on, mean, components, low, step)

    @property
    def width(self) -> int:
        """C, the dimensions of a stored vector."""
        return self.form.size or self.dimensions

    @property
    def code_width(self) -> int:
        """P, the numbers of a code."""
        return -(-self.width // 8) if self.form.type == BINARY else self.width

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """Type of the numbers of a code."""
        if self.form.is_float:
            return np.dtype(self.form.type)
        return np.dtype(np.uint8)

    def reduce(self, points: NDArray[Any]) -> Floats:
        """Returns vectors B×D in C dimensions, which are not rounded further.

        `project` subtracts the mean and projects on the principal directions, which keeps distances
        as far as so many dimensions can. `pca` divides by the standard deviations, too: whitening.
        Vectors of length 1 get it again after `pca` (Jégou and Chum, Negative evidences and
        co-occurrences in image retrieval, 2012) and `truncate`; those of zeros stay zero.
        """
        if self.form.reduction is None:
            return points.astype(np.float32, copy=False)
        values = points.astype(np.float64, copy=False)
        if self.mean is not None and self.components is not None:
            values = (values - self.mean) @ self.components.T.astype(np.float64)
        else:
            values = values[:, : self.width]
        if self.is_unit and self.form.reduction != PROJECT:
            lengths = np.linalg.norm(values, axis=1, keepdims=True)
            values = values / np.where(lengths > 0, lengths, 1)
        return values.astype(np.float32)

    def make_queries(self, points: NDArray[Any]) -> Floats:
        """Returns queries B×C of vectors B×D.

        Those of signs are scaled to the length √C, which vectors of ±1 have.
        """
        queries = self.reduce(points)
        if self.form.type != BINARY:
            return queries
        lengths = np.linalg.norm(queries.astype(np.float64), axis=1, keepdims=True)
        factors = self.width**0.5 / np.where(lengths > 0, lengths, 1)
        return (queries * factors).astype(np.float32)

    def encode(self, points: NDArray[Any]) -> NDArray[Any]:
        """Returns the codes B×P of vectors B×D.

        `int8` rounds each coordinate to the nearest of 256 numbers between the smallest and largest
        one of the fitted vectors, and clips what is outside. `binary` stores whether a coordinate
        is above 0, eight of them in a byte, the first one highest; the last bits are 0.

        Raises:
            ValueError: vectors are not finite, or too large for the type.
        """
        return self.round_queries(self.reduce(points))

    def round_queries(self, values: Floats) -> NDArray[Any]:
        """Returns the codes B×P of vectors B×C that `reduce` or `make_queries` has returned.

        Raises:
            ValueError: see `encode`.
        """
        if not np.isfinite(values).all():
            raise ValueError("vectors with values that are NaN or infinite; leave out these rows")
        if self.form.type == BINARY:
            return np.packbits(values > 0, axis=1)
        if self.form.type == INT8:
            return self._round(values)
        with np.errstate(over="ignore"):
            codes = values.astype(self.form.type)
        if not np.isfinite(codes).all():
            raise ValueError(
                f"{self.form.name}: values above {np.finfo(FLOAT16).max:.0f} are too large for "
                f"float16; divide the embeddings by a number, or use int8"
            )
        return codes

    def decode(self, codes: NDArray[Any]) -> Floats:
        """Returns the vectors B×C of codes B×P: of `binary`, +1 where a bit is set and −1 else."""
        if self.form.type == BINARY:
            signs = np.unpackbits(np.asarray(codes), axis=1, count=self.width).astype(np.float32)
            signs *= 2
            signs -= 1
            return signs
        if self.form.type == INT8:
            low, step = self._ranges()
            return (low + codes * step.astype(np.float64)).astype(np.float32)
        return np.asarray(codes).astype(np.float32)

    @property
    def largest_error(self) -> float:
        """Largest distance of a vector in the fitted range to its code of `int8`; 0 of others."""
        return 0.0 if self.step is None else float(np.linalg.norm(self.step)) / 2

    def _round(self, values: Floats) -> NDArray[np.uint8]:
        low, step = self._ranges()
        # A dimension of one value has a step of 0: all its codes are 0.
        steps = np.where(step > 0, step, 1).astype(np.float64)
        codes = np.rint((values - low.astype(np.float64)) / steps)
        return np.clip(codes, 0, LEVELS).astype(np.uint8)

    def _ranges(self) -> tuple[Floats, Floats]:
        assert self.low is not None  # both are known of every form of int8
        assert self.step is not None
        return self.low, self.step

    def to_text(self) -> str:
        """Returns JSON with all attributes; arrays are base64 of little-endian float32."""
        content: dict[str, Any] = {
            "form": self.form.name,
            "dimensions": self.dimensions,
            "unit": self.is_unit,
            "fitted_on": self.fitted_on,
        }
        for name in PARAMETERS:
            values = getattr(self, name)
            if values is not None:
                content[name] = base64.b64encode(values.astype("<f4").tobytes()).decode()
        return json.dumps(content)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Returns the compression that `to_text` wrote.

        Raises:
            ValueError: the text is of something else, or damaged.
        """
        try:
            content = json.loads(text)
            form = parse_form(str(content["form"]))
            dimensions, is_unit = content["dimensions"], content["unit"]
            if type(dimensions) is not int or type(is_unit) is not bool:
                raise TypeError
            if dimensions < (form.size or 1):
                raise TypeError
            width = form.size or dimensions
            shapes: dict[str, tuple[int, ...]] = {}
            if form.reduction in FITTED:
                shapes |= {"mean": (dimensions,), "components": (width, dimensions)}
            if form.type == INT8:
                shapes |= {"low": (width,), "step": (width,)}
            arrays = {name: _read_array(content[name], shape) for name, shape in shapes.items()}
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError("compression: it is damaged, or of another version") from error
        fitted_on = str(content.get("fitted_on", ""))
        return cls(form, dimensions, is_unit, fitted_on, **arrays)

    def check_codes(self, codes: NDArray[Any], name: str = "embeddings") -> None:
        """Checks codes of a file.

        Raises:
            ValueError: they have another type or width than the form.
        """
        is_matrix = codes.ndim == 2 and codes.shape[1] == self.code_width
        if not is_matrix or codes.dtype != self.code_dtype:
            raise ValueError(
                f"{name}: {self.form.name} has {self.code_width} numbers of {self.code_dtype} in a "
                f"row, got {codes.dtype} of shape {codes.shape}"
            )


def _sample(points: NDArray[Any]) -> NDArray[np.float64]:
    """Returns at most `FITTED_ROWS` rows, evenly spaced.

    Raises:
        ValueError: they are not finite, or too large.
    """
    number = min(len(points), FITTED_ROWS)
    rows = np.linspace(0, len(points) - 1, number).astype(np.int64)
    sample = np.asarray(points[rows], dtype=np.float64)
    if not np.isfinite(sample).all():
        raise ValueError("vectors with values that are NaN or infinite; leave out these rows")
    if np.abs(sample).max() > LARGEST:
        raise ValueError(f"vectors with values above {LARGEST:.0e}; divide them by a number")
    return sample


def _fit_pca(sample: NDArray[np.float64], form: CompressionForm) -> tuple[Floats, Floats]:
    """Returns the mean and the principal directions, for whitening by the standard deviations.

    Raises:
        ValueError: the vectors vary in fewer dimensions.
    """
    from sklearn import decomposition  # imported late: it takes a second

    assert form.size is not None  # of every form of PCA
    size = min(form.size, *sample.shape)
    with np.errstate(invalid="ignore", divide="ignore"):  # of equal vectors, or a single one
        fitted = decomposition.PCA(size, svd_solver="full").fit(sample)
    variances = fitted.explained_variance_
    # Below it, a variance is that of rounding.
    least = sample.shape[1] * SMALLEST**2 * np.square(sample).mean()
    rank = int((variances > least).sum()) if len(sample) > 1 else 0
    if rank < form.size:
        advice = f"use {form.reduction}{rank} or fewer" if rank else "use another form"
        raise ValueError(
            f"{form.name}: the {len(sample):,} vectors by which it is fitted vary in {rank} "
            f"dimensions only; {advice}"
        )
    components = fitted.components_
    if form.reduction == PCA:
        components = components / np.sqrt(variances)[:, None]
    return fitted.mean_.astype(np.float32), components.astype(np.float32)


def _fit_ranges(values: Floats) -> tuple[Floats, Floats]:
    """Returns the smallest number of each dimension, and the step to the next one of 256."""
    low, high = values.min(axis=0).astype(np.float64), values.max(axis=0).astype(np.float64)
    return low.astype(np.float32), ((high - low) / LEVELS).astype(np.float32)


def _read_array(text: Any, shape: tuple[int, ...]) -> Floats:
    """Returns an array of base64.

    Raises:
        ValueError, TypeError: it has another size, or numbers that are not finite.
    """
    values = np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    if values.size != np.prod(shape) or not np.isfinite(values).all():
        raise TypeError
    return values.reshape(shape).astype(np.float32)
