"""Validators for options whose values a number's limits cannot describe.

Each raises its own message, which the check puts behind the dotted name of the option.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from dml.config.descriptions import describe_value
from dml.core import metric_names
from dml.core.errors import nearest
from dml.core.option_values import BACKENDS, BATCH_KINDS, COMPILE_MODES, SCHEDULES

AUTO = "auto"
# Upper limits far above any use: a typing error must not exhaust the machine or hang.
MAX_PIXELS = 16_384  # of a side
MAX_WORKERS = 1024
MAX_REPEATS = 1000
MAX_BATCH_SIZE = 1_000_000
PAPERS_CROP = 224 / 256  # of a test image: the share that every protocol of the papers cuts out
PROBLEM = "problem"  # type of the errors below: their message is complete

# Numbers, booleans and texts are not converted into each other, except `name=2024`.
Integer = StrictInt
Float = StrictFloat  # or an integer
Boolean = StrictBool
Text = Annotated[str, Field(coerce_numbers_to_str=True)]
Count = Annotated[Integer, Field(ge=1)]
CountFromZero = Annotated[Integer, Field(ge=0)]
BatchSize = Annotated[Integer, Field(ge=1, le=MAX_BATCH_SIZE)]
Pixels = Annotated[Integer, Field(ge=1, le=MAX_PIXELS)]
NotNegative = Annotated[Float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[Float, Field(gt=0, allow_inf_nan=False)]


def _problem(message: str) -> PydanticCustomError:
    return PydanticCustomError(PROBLEM, "{message}", {"message": message})


@dataclass(frozen=True)
class Names(AfterValidator):
    """Accepts text that is one of `names`, which the reference of the options lists."""

    names: tuple[str, ...]


def one_of(names: Collection[str]) -> Names:
    """Accepts text that is one of `names`."""

    def check(text: str) -> str:
        if text not in names:
            raise _problem(
                f"'{text}' is not valid{nearest(text, names)}; one of {' | '.join(names)}"
            )
        return text

    return Names(check, tuple(names))


def _matching(pattern: str, message: str) -> AfterValidator:
    """Accepts text that matches `pattern` as a whole; `{}` in the message stands for the text."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise _problem(message.format(text))
        return text

    return AfterValidator(check)


def _interval(pair: list[float]) -> list[float]:
    if not (len(pair) == 2 and 0 < pair[0] <= pair[1] < math.inf):
        raise _problem(f"{pair} must be two numbers above 0, the smaller one first")
    return pair


def _cache_size(value: Any) -> Any:
    if value in (None, "full") or (type(value) is int and value > 0):
        return value
    raise _problem(f"{describe_value(value)} must be null, full or a number of pixels above 0")


def _test_resize(value: Any) -> Any:
    if value in (None, AUTO) or (type(value) is int and 1 <= value <= MAX_PIXELS):
        return value
    raise _problem(
        f"{describe_value(value)} must be auto, null or a number of pixels, at least 1, at most "
        f"{MAX_PIXELS}"
    )


def _compile(value: Any) -> Any:
    if value in COMPILE_MODES:
        return value
    try:
        return TypeAdapter(Boolean).validate_python(value)
    except ValidationError:
        modes = " | ".join(("true", "false", *COMPILE_MODES))
        raise _problem(f"{describe_value(value)} is not valid; one of {modes}") from None


def _workers(value: Any) -> Any:
    number = TypeAdapter(Annotated[Integer, Field(ge=0, le=MAX_WORKERS)])
    try:
        return value if value == AUTO else number.validate_python(value)
    except ValidationError:
        wanted = f"auto or a whole number from 0 to {MAX_WORKERS}"
        raise _problem(f"{describe_value(value)} must be {wanted}") from None


def resolve_test_resize(
    value: int | str | None, input_size: int | None, crop_share: float | None = PAPERS_CROP
) -> int | None:
    """Returns the shorter side before the central crop that `transform.test_resize` stands for.

    Args:
        value: pixels; "auto" for 256 where the input has 224 or 227 pixels, as every protocol of
            the papers, else 256/224 of the input; None for the whole image.
        input_size: side of the crop in pixels; None keeps the size of the images.
        crop_share: `backbone.crop_share`, for "auto": the crop's share of the shorter side, rounded
            as timm rounds it; None for the whole image.
    """
    if value != AUTO:
        return None if value is None else int(value)
    if input_size is None or crop_share is None:
        return None
    if crop_share != PAPERS_CROP:
        return math.floor(input_size / crop_share)
    return 256 if input_size in (224, 227) else round(256 / 224 * input_size)


def _output_folder(path: str) -> str:
    existing = next(one for one in (Path(path), *Path(path).absolute().parents) if one.exists())
    if not existing.is_dir():
        raise _problem(f"cannot be created below {existing}, which is not a folder")
    if not os.access(existing, os.W_OK):
        raise _problem(f"{existing} is not writable")
    return path


def _device(device: str) -> str:
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not number.isdigit()):
        raise _problem(f"'{device}' is not valid; one of auto | cpu | cuda | cuda:<n>")
    if kind == "cuda":
        import torch  # only here: errors of other options must not wait for torch to load

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise _problem(f"'{device}' needs a GPU, and this machine has none; use cpu")
        if int(number or 0) >= count:
            raise _problem(f"'{device}' does not exist; the last of {count} is cuda:{count - 1}")
    return device


def _installed_backend(backend: str) -> str:
    if backend == "faiss" and find_spec("faiss") is None:
        raise _problem(
            "faiss is not installed: pip install faiss-cpu; auto gives the same scores without it"
        )
    return backend


def _schedule(value: Any) -> Any:
    if value is None or isinstance(value, dict) or value in SCHEDULES:
        return None if value == "none" else value
    raise _problem(
        f"{describe_value(value)} is not valid{nearest(value, SCHEDULES)}; one of "
        f"{' | '.join(SCHEDULES)}, or a class: "
        f"optim.schedule={{_target_:torch.optim.lr_scheduler.StepLR,step_size:10}}"
    )


def _plain_text(value: Any) -> str:
    if not (isinstance(value, str) and value):
        raise _problem(f"{describe_value(value)} must be text")
    return value


_PlainText = Annotated[str, BeforeValidator(_plain_text)]
_FOLDER_NAME = _matching(
    r"\w[\w.+=,@-]*",
    "'{}' is part of the run folder's name: letters, digits and . _ - + = only, "
    "a letter or digit first",
)


class _Target(BaseModel):
    model_config = ConfigDict(extra="allow")
    target: _PlainText = Field(alias="_target_")


class _NamedTarget(_Target):
    name: Annotated[_PlainText, _FOLDER_NAME]


class _Loss(_NamedTarget):
    result_id: _PlainText
    batch_kind: Annotated[_PlainText, one_of(BATCH_KINDS)]


def _with_keys_of(model: type[BaseModel]) -> AfterValidator:
    """Accepts a node that has the keys of `model`, and any others."""

    def check(node: dict[str, Any]) -> dict[str, Any]:
        model.model_validate(node)
        return node

    return AfterValidator(check)


Backend = Annotated[Text, one_of(BACKENDS), AfterValidator(_installed_backend)]
FolderName = Annotated[Text, _FOLDER_NAME]
OutputFolder = Annotated[Text, AfterValidator(_output_folder)]
Device = Annotated[Text, AfterValidator(_device)]
Interval = Annotated[list[Float], AfterValidator(_interval)]
TestResize = Annotated[int | str | None, BeforeValidator(_test_resize)]
Schedule = Annotated[dict[str, Any] | str | None, BeforeValidator(_schedule)]
Compile = Annotated[bool | str, BeforeValidator(_compile)]
Workers = Annotated[int | str, BeforeValidator(_workers)]
CacheSize = Annotated[int | str | None, BeforeValidator(_cache_size)]
SelectMetric = Annotated[
    Text,
    _matching(
        rf"{'|'.join(metric_names.LABELS)}|{metric_names.RECALL}\d+",
        f"'{{}}' is not valid; one of {metric_names.CHOICES}",
    ),
]
TargetNode = Annotated[dict[str, Any], _with_keys_of(_Target)]
NamedNode = Annotated[dict[str, Any], _with_keys_of(_NamedTarget)]
LossNode = Annotated[dict[str, Any], _with_keys_of(_Loss)]
