"""The typed nodes of the config, with the range of every number and the names that text can be.

Defaults live in the YAML files, which also explain the options. Options of a loss, a method, a
backbone or a reader belong to the class named by `_target_` and are bound to its constructor when
it is built (`signatures.py`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dml.config.fields import (
    MAX_PIXELS,
    MAX_REPEATS,
    MAX_WORKERS,
    PAPERS_CROP,
    Backend,
    BatchSize,
    Boolean,
    CacheSize,
    Compile,
    Count,
    CountFromZero,
    Device,
    Float,
    FolderName,
    Integer,
    Interval,
    LossNode,
    NamedNode,
    NotNegative,
    OutputFolder,
    Pixels,
    Positive,
    Schedule,
    SelectMetric,
    TargetNode,
    TestResize,
    Text,
    Workers,
    one_of,
    resolve_test_resize,
)
from dml.core.option_values import (
    AUGMENTATIONS,
    EVALUATION_UNITS,
    EXTRA_METRICS,
    PRECISIONS,
    SAMPLERS,
    SEARCH_SAMPLERS,
    SELECTED_ON,
    SPLITS,
    STOPPING_UNITS,
    STORED_PRECISIONS,
)


class Node(BaseModel):
    """A node of the config; options that it does not list are refused."""

    model_config = ConfigDict(extra="forbid")


class DataConfig(Node):
    """The dataset, and how it is cut into batches."""

    name: FolderName
    stand_in: Boolean
    identified_by: Annotated[Text, one_of(("place", "name"))]
    root: Text
    reader: dict[str, Any]
    label_noise: Annotated[Float, Field(ge=0, lt=1)]
    query_gallery: Annotated[Text, one_of(("split", "none"))]
    sampler: Annotated[Text, one_of(SAMPLERS)]
    batch_size: BatchSize
    images_per_class: BatchSize | None
    eval_batch_size: Count
    workers: Workers
    cache: CacheSize
    exif_orientation: Boolean
    skip_corrupt: Boolean


class TransformConfig(Node):
    """Crops and flips of `dml.data.transforms`."""

    augmentation: Annotated[Text, one_of(AUGMENTATIONS)]
    size: Pixels | None
    resize: Pixels | None
    scale: Interval
    ratio: Interval
    flip: Boolean
    padding: Annotated[Integer, Field(ge=0, le=MAX_PIXELS)]
    degrees: Annotated[Float, Field(ge=0, le=360)]
    test_resize: TestResize


class OptimConfig(Node):
    """A torch optimizer, its parameter groups and its schedule."""

    name: Text
    target: Text = Field(alias="_target_")
    args: dict[str, Any]
    lr: NotNegative
    weight_decay: NotNegative
    loss_lr: NotNegative | None
    loss_lr_ratio: NotNegative | None
    groups: dict[str, dict[str, Any]]
    schedule: Schedule
    schedule_args: dict[str, Any]
    clip_value: Positive | None
    clip_norm: Positive | None
    clip_loss_parameters: Boolean
    warmup_epochs: CountFromZero


class StoppingConfig(Node):
    """When training stops because validation no longer improves."""

    unit: Annotated[Text, one_of(STOPPING_UNITS)]
    patience: Count | None
    min_delta: NotNegative


class ProtocolConfig(Node):
    """The models to train, their classes, the length of training and the selection of an epoch."""

    name: FolderName
    result_id: Text
    splits: Annotated[Text, one_of(SPLITS)]
    selected_on: Annotated[Text, one_of(SELECTED_ON)]
    select_metric: SelectMetric
    repeats: Annotated[Integer, Field(ge=1, le=MAX_REPEATS)]
    epochs: CountFromZero
    steps_per_epoch: Count | None
    evaluate_every: Count
    evaluate_unit: Annotated[Text, one_of(EVALUATION_UNITS)]
    stopping: StoppingConfig
    workers: Annotated[Integer, Field(ge=1, le=MAX_WORKERS)]
    lookup: dict[str, Any]


class EvaluationConfig(Node):
    """Metrics beside the scores, and what is kept of an evaluation."""

    measures: list[Annotated[Text, one_of(EXTRA_METRICS)]]
    backend: Backend
    test_curve: Boolean
    keep_embeddings: Boolean


class SearchConfig(Node):
    """A search over the protocol's validation score."""

    name: Text
    trials: Count
    startup: Count
    sampler: Annotated[Text, one_of(SEARCH_SAMPLERS)]
    pruning: Boolean
    storage: Text | None
    lease_seconds: Annotated[Float, Field(ge=1, allow_inf_nan=False)]


class ExperimentConfig(Node):
    """The table or figure that a run belongs to, and its presentation in a report.

    Attributes:
        id, title: its name, also of the folder of its runs, and one line about it.
        source: the paper: mft | pfml | metrix | ccp.
        tables: the paper's tables that print its numbers (`T1`, `text`).
        metrics: the metrics that they print; the first one is tested for significance.
        spread: meaning of the number behind ±: ci95 | std | none.
        setting: name under which the paper's tables list this run among others of its method.
        figures: kinds of figures (`dml.reporting.report_figures`).
        params: table of `configs/params` whose values hold unless an override sets them.
        script: command that draws it, from runs or by itself.
        trains: false if nothing is trained and the script does everything.
        gpu_hours: estimate for all its trainings (`dml.reporting.cost`).
    """

    id: FolderName
    title: Text
    source: Text | None
    tables: list[Text]
    metrics: list[Text]
    spread: Text
    setting: Text | None
    figures: list[Text]
    params: Text | None
    script: Text | None
    trains: Boolean
    gpu_hours: Float | None


class Config(Node):
    """The config of `train.py`: one run."""

    name: Text | None = None
    note: Text | None = None
    seed: CountFromZero
    device: Device
    precision: Annotated[Text, one_of(PRECISIONS)]
    channels_last: Boolean
    compile: Compile
    keep_memory: Boolean
    outputs: OutputFolder
    overwrite: Boolean
    max_minutes: Positive | None
    experiment: ExperimentConfig
    data: DataConfig
    transform: TransformConfig
    backbone: NamedNode
    embedder: dict[str, Any]
    optim: OptimConfig
    loss: LossNode
    method: NamedNode
    protocol: ProtocolConfig
    evaluation: EvaluationConfig
    tracking: TargetNode
    search: SearchConfig | None = None
    space: dict[str, Any]

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
    """The config of `evaluate.py`: a training run's, and options of its own."""

    run: Text | None
    embeddings: Text | None
    save: Annotated[Text, one_of(STORED_PRECISIONS)] | None
    recall_at: list[Count] | None
