"""The typed nodes of the config, with the valid range or values of every option.

Defaults live in the YAML files, which also explain the options. Options of a loss, a method, a
backbone or a reader are arguments of the class named by `_target_` and are checked against its
constructor before it is called (`signatures.py`).
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from PIL import ImageColor
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr

from dml.config import identity
from dml.core.compression_forms import parse_form
from dml.core.metric_names import is_taken
from dml.core.names import RULE, is_name
from dml.core.option_values import (
    EXTRA_METRICS,
    MAX_IMAGE_PIXELS,
    SPLITS,
    Augmentation,
    MoreAugmentation,
    RetrievalBackend,
    Sampler,
)

# Upper limits far above any real use, so that a typo cannot exhaust the memory of the machine.
MAX_PIXELS = 16_384  # per side
BACKGROUND = "white"  # of transparent images
LORA = "lora"  # value of backbone.train
PAPERS_CROP = 224 / 256  # side of the central crop of test images, in every protocol of the papers


def resolve_test_resize(
    value: int | str | None, input_size: int | None, crop_share: float | None = PAPERS_CROP
) -> int | None:
    """Returns the shorter side, in pixels, to which `transform.test_resize` resizes test images.

    Args:
        value: pixels; "auto" for 256 if the input has 224 or 227 pixels, as in every protocol of
            the papers, else 256/224 of the input, or by `crop_share`; None for the whole image.
        input_size: side of the central crop in pixels; None keeps the size of the images.
        crop_share: `backbone.crop_share`, for "auto": the crop's share of the shorter side, rounded
            as in timm; None for the whole image.
    """
    if value != "auto":
        return None if value is None else int(value)
    if input_size is None or crop_share is None:
        return None
    if crop_share != PAPERS_CROP:
        return math.floor(input_size / crop_share)
    return 256 if input_size in (224, 227) else round(256 / 224 * input_size)


def _check_folder_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"is part of the run folder's name: {RULE}")
    return text


_runs_here = ContextVar("runs_here", default=True)


@contextmanager
def for_another_machine() -> Iterator[None]:
    """Accepts devices that this machine lacks, for a command that plans or prepares runs."""
    token = _runs_here.set(False)
    try:
        yield
    finally:
        _runs_here.reset(token)


def check_device(device: str) -> str:
    """Returns the value of the option `device`.

    Raises:
        ValueError: it is none, or the run is on this machine, which has no such device.
    """
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not number.isdigit()):
        raise ValueError("must be auto, cpu, cuda or cuda:<n>")
    if kind == "cuda" and _runs_here.get():
        import torch  # only here: errors of other options must not wait for torch to load

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ValueError("needs a GPU, and this machine has none; use cpu")
        if int(number or 0) >= count:
            raise ValueError(f"does not exist; the last of {count} is cuda:{count - 1}")
    return device


def _check_color(color: str) -> str:
    channels = 0
    with suppress(ValueError):
        channels = len(ImageColor.getrgb(color))
    if channels != 3:  # unknown, or with alpha
        raise ValueError("is no color; use white, black, \"data.background='#rrggbb'\" or the like")
    return color


def _check_backend(backend: str) -> str:
    if backend == "faiss" and find_spec("faiss") is None:
        raise ValueError(
            "is not installed: pip install faiss-cpu; auto gives the same scores without it"
        )
    return backend


def _check_form(name: str) -> str:
    parse_form(name)
    return name


def _check_layers(names: str | list[str]) -> str | list[str]:
    if not names:
        raise ValueError("names no layer; use all, or names such as [qkv,proj]")
    return names


def _check_metric_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or is_taken(name):
        raise ValueError(
            "is no name for a metric of yours: letters, digits and _, and no name of another metric"
        )
    return name


class _Target(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    target: str = Field(alias="_target_", min_length=1)


class _NamedTarget(_Target):
    name: FolderName


class _Metric(_Target):
    best_only: bool = False


class _Loss(_NamedTarget):
    result_id: str
    batch_kind: Literal["pair", "classification"]


def _with_keys_of(model: type[BaseModel]) -> AfterValidator:
    """Accepts a node with the keys of `model` and any other keys."""
    return AfterValidator(lambda node: model.model_validate(node) and node)


Text = Annotated[str, Field(strict=False, coerce_numbers_to_str=True)]  # name=2024
FolderName = Annotated[Text, AfterValidator(_check_folder_name)]
MetricName = Annotated[str, AfterValidator(_check_metric_name)]
Color = Annotated[Text, AfterValidator(_check_color)]
Count = Annotated[int, Field(ge=1)]
CountFromZero = Annotated[int, Field(ge=0)]
BatchSize = Annotated[int, Field(ge=1, le=1_000_000)]
Pixels = Annotated[int, Field(ge=1, le=MAX_PIXELS)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Interval = Annotated[list[Positive], Field(min_length=2, max_length=2)]
TargetNode = Annotated[dict[str, Any], _with_keys_of(_Target)]
NamedNode = Annotated[dict[str, Any], _with_keys_of(_NamedTarget)]
LossNode = Annotated[dict[str, Any], _with_keys_of(_Loss)]
MetricNode = Annotated[dict[str, Any], _with_keys_of(_Metric)]


class Node(BaseModel):
    """A node of the config; unknown options are rejected.

    Strict: numbers, booleans and texts are not converted into each other.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Lora(Node):
    """The options of `backbone.train=lora`."""

    rank: Count = 8
    alpha: Positive = 16
    targets: Annotated[Literal["all"] | list[Text], AfterValidator(_check_layers)] = "all"


class _Backbone(_NamedTarget):
    lora: Lora = Lora()


BackboneNode = Annotated[dict[str, Any], _with_keys_of(_Backbone)]


class DataConfig(Node):
    """The dataset, its sampler and its loading."""

    name: FolderName
    stand_in: bool
    identified_by: Literal["place", "name"]
    root: Text
    reader: dict[str, Any]
    crop: Literal["boxes"] | None = None
    images: Literal["highres"] | None = None
    label_noise: Annotated[float, Field(ge=0, lt=1)]
    query_gallery: Literal["split", "none"]
    classes: Annotated[int, Field(ge=2)] | None
    images_per_class_at_most: Annotated[int, Field(ge=2)] | None
    sampler: Sampler | TargetNode
    pair_sampler: Sampler
    batch_size: BatchSize
    micro_batch: BatchSize | None
    images_per_class: BatchSize | None
    categories_per_batch: BatchSize | None = None
    eval_batch_size: Literal["auto"] | BatchSize
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=1024)]
    cache: Literal["full"] | Pixels | None
    exif_orientation: bool
    background: Color = BACKGROUND
    max_pixels: Annotated[int, Field(ge=1, lt=2**31)] = MAX_IMAGE_PIXELS
    skip_corrupt: bool

    @property
    def variant(self) -> str:
        """The id of the images in tables (`identity.dataset_id`)."""
        return identity.dataset_id(self.name, self.crop, self.images)

    @property
    def stands_in(self) -> bool:
        """Whether the images stand in for a benchmark: a small dataset, or a part of any.

        `stand_in` is of the dataset alone, so that the config is the one that was composed.
        """
        is_part = self.classes is not None or self.images_per_class_at_most is not None
        return self.stand_in or is_part


class TransformConfig(Node):
    """Crops and flips of `dml.data.transforms`."""

    augmentation: Augmentation
    size: Pixels | None
    resize: Pixels | None
    scale: Interval
    ratio: Interval
    flip: bool
    padding: Annotated[int, Field(ge=0, le=MAX_PIXELS)]
    degrees: Annotated[float, Field(ge=0, le=360)]
    test_resize: Literal["auto"] | Pixels | None
    then: list[MoreAugmentation | TargetNode] = []
    target: Annotated[str, Field(min_length=1)] | None = Field(default=None, alias="_target_")
    args: dict[str, Any] = {}


class OptimConfig(Node):
    """A torch optimizer, its parameter groups and its schedule."""

    name: Text
    target: str = Field(alias="_target_")
    args: dict[str, Any]
    lr: NotNegative
    weight_decay: NotNegative
    loss_lr: NotNegative | None
    loss_lr_ratio: NotNegative | None
    groups: dict[Literal["backbone", "batch_norm", "bias", "head", "loss"], dict[str, Any]]
    schedule: Literal["cosine", "step"] | dict[str, Any] | None
    schedule_args: dict[str, Any]
    schedule_unit: Literal["epochs", "steps"] = "epochs"
    warmup_steps: CountFromZero = 0
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    clip_value: Positive | None
    clip_norm: Positive | None
    clip_loss_parameters: bool
    warmup_epochs: CountFromZero


class StoppingConfig(Node):
    """When training stops because validation no longer improves."""

    unit: Literal["evaluations", "epochs"]
    patience: Count | None
    min_delta: NotNegative


class ProtocolConfig(Node):
    """The models to train, their classes, the length of training and the selection of an epoch.

    Attributes:
        test_share, validation_share, split_seed, neighbors: of closed sets (`dml.data.closed_set`).
    """

    name: FolderName
    result_id: Text
    backbones: list[Text]
    splits: Literal[tuple(SPLITS)]  # type: ignore[valid-type]
    selected_on: Literal["test", "validation", "nothing"]
    select_metric: Text
    repeats: Annotated[int, Field(ge=1, le=1000)]
    epochs: CountFromZero
    steps_per_epoch: Count | None
    evaluate_every: Count
    evaluate_unit: Literal["epochs", "steps"]
    stopping: StoppingConfig
    trials: Count
    workers: Annotated[int, Field(ge=1, le=1024)]
    test_share: Share = 0.2
    validation_share: Share = 0.2
    split_seed: CountFromZero = 0
    neighbors: Count = 5


class EvaluationConfig(Node):
    """Extra metrics, the retrieval backend and the files of an evaluation.

    Attributes:
        metrics: by name, a class or function of the user with its arguments, and `best_only`.
        by: the part of the queries that has scores of its own.
        compress: forms of smaller vectors that are scored too (`dml.core.compression_forms`).
    """

    measures: list[Literal[tuple(EXTRA_METRICS)]]  # type: ignore[valid-type]
    backend: Annotated[RetrievalBackend, AfterValidator(_check_backend)]
    test_curve: bool
    keep_embeddings: bool
    map_classes: Annotated[list[Count], Field(min_length=1)]
    metrics: dict[MetricName, MetricNode] = {}
    by: Literal["category"] | None = None
    compress: list[Annotated[str, AfterValidator(_check_form)]] = []


class SearchConfig(Node):
    """A search over the protocol's validation score."""

    name: Text
    trials: Count
    startup: Count
    sampler: Literal["gp", "tpe", "grid"]
    try_defaults: bool
    pruning: bool
    storage: Text | None


class ExperimentConfig(Node):
    """The table or figure that a run belongs to, and its presentation in a report.

    Attributes:
        id, title: its name, which is also the folder of its runs, and a line that describes it.
        source: the paper: mft | pfml | metrix | ccp; or oml, the library.
        tables: the paper's tables that print its numbers (`T1`, `text`).
        metrics: the metrics in these tables; the first one is tested for significance.
        rows: what the rows of a table are: methods of one network | networks without training.
        spread: what the paper prints after ±: ci95 | std | none. Reports print 95 % intervals.
        setting: name of this run's setting, if the paper's tables print several of one method.
        figures: kinds of figures (`dml.results.figures`).
        params: table of `configs/params` whose values hold unless an override sets them.
        script: command that draws the figure, with or without runs.
        trains: false if nothing is trained and the script does everything.
        gpu_hours: estimated GPU hours of all its training runs (`dml plan`).
    """

    id: FolderName
    title: Text
    source: Text | None
    tables: list[Text]
    metrics: list[Text]
    rows: Literal["methods", "networks"] = "methods"
    spread: Text
    setting: Text | None
    figures: list[Text]
    params: Text | None
    script: Text | None
    trains: bool
    gpu_hours: float | None


class Config(Node):
    """The config of `train.py`: one run, made by `dml.config.check.check`."""

    name: Text | None = None
    note: Text | None = None
    seed: CountFromZero
    device: Annotated[Text, AfterValidator(check_device)]
    speed: Literal["exact", "fast"]
    precision: Literal["fp32", "tf32", "bf16"]
    channels_last: bool
    compile: bool | Literal["reduce-overhead"]
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    keep_memory: bool
    outputs: Text
    overwrite: bool
    max_minutes: Positive | None
    experiment: ExperimentConfig
    data: DataConfig
    transform: TransformConfig
    backbone: BackboneNode
    embedder: dict[str, Any]
    optim: OptimConfig
    loss: LossNode
    method: NamedNode
    protocol: ProtocolConfig
    evaluation: EvaluationConfig
    tracking: TargetNode
    search: SearchConfig | None = None
    space: dict[str, Any]
    code: dict[str, str] = {}  # own module → hash, see `own_code.py`

    _composed: Any = PrivateAttr(None)  # as Hydra composed it, for values that follow from others
    _plain: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def plain(self) -> dict[str, Any]:
        """The options as they are stored: nested mappings of plain values."""
        return copy.deepcopy(self._plain)

    @property
    def identity(self) -> dict[str, Any]:
        """The options that determine the result, by dotted names."""
        return identity.identity(self._plain)

    @property
    def digest(self) -> str:
        """Eight hex digits of a hash of `identity`."""
        return identity.digest(self._plain)

    def on_device(self, gpu: bool) -> Config:
        """Returns the config with the options that `speed=fast` sets on a GPU."""
        if self.speed == "exact" or not gpu:
            return self
        precision = "tf32" if self.precision == "fp32" else self.precision
        return self.model_copy(update={"precision": precision, "channels_last": True})

    @property
    def uses_categories(self) -> bool:
        """Whether the result depends on the categories of the images."""
        return self.data.sampler == "category" or self.evaluation.by is not None

    @property
    def crop_size(self) -> int | None:
        """Side of the network's input in pixels; None if the images keep their size."""
        return self.transform.size or self.backbone.get("input_size")

    @property
    def test_resize(self) -> int | None:
        """`transform.test_resize` with "auto" resolved."""
        share = self.backbone.get("crop_share", PAPERS_CROP)
        return resolve_test_resize(self.transform.test_resize, self.crop_size, share)


class EvaluateConfig(Config):
    """The config of `dml evaluate`: the options of a training run and of the evaluation."""

    run: Text | None
    trust: bool = False
    embeddings: Text | None
    save: Literal["float16", "float32"] | None
    errors: bool = False
    per_query: bool = False
    recall_at: list[Count] | None
