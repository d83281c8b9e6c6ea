"""The typed nodes of the config: what may stand where.

Defaults live in the YAML files, which also explain them. Values of a loss, a method, a backbone or
a reader belong to the class named by `_target_` and are bound to its constructor when it is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args, get_origin


@dataclass
class DataConfig:
    """Which dataset, and how it is cut into batches."""

    name: str
    stand_in: bool
    identified_by: str
    root: str
    reader: dict[str, Any]
    label_noise: float
    query_gallery: str
    sampler: str
    batch_size: int
    images_per_class: int | None
    eval_batch_size: int
    workers: int
    cache: int | str | None
    cache_device: str


@dataclass
class TransformConfig:
    """Crops and flips of `dml.data.transforms`."""

    augmentation: str
    size: int | None
    resize: int | None
    scale: list[float]
    ratio: list[float]
    flip: bool
    padding: int
    degrees: float
    test_resize: int | str | None


@dataclass
class OptimConfig:
    """A torch optimizer and what goes with it."""

    name: str
    _target_: str
    args: dict[str, Any]
    lr: float
    weight_decay: float
    loss_lr: float | None
    loss_lr_ratio: float | None
    groups: dict[str, Any]
    schedule: dict[str, Any] | None
    clip_value: float | None
    clip_norm: float | None
    clip_loss_parameters: bool
    warmup_epochs: int


@dataclass
class StoppingConfig:
    """When validation has stopped improving."""

    unit: str
    patience: int | None
    min_delta: float


@dataclass
class ProtocolConfig:
    """Which models are trained on what, for how long, and which of their epochs counts."""

    name: str
    result_id: str
    splits: str
    selected_on: str
    select_metric: str
    repeats: int
    epochs: int
    steps_per_epoch: int | None
    evaluate_every: int
    evaluate_unit: str
    stopping: StoppingConfig
    workers: int
    lookup: dict[str, Any]


@dataclass
class EvaluationConfig:
    """What is measured and kept beside the scores."""

    measures: list[str]
    test_curve: bool
    keep_embeddings: bool


@dataclass
class SearchConfig:
    """A search over the protocol's validation score."""

    name: str
    trials: int
    startup: int
    sampler: str
    pruning: bool
    storage: str | None
    lease_seconds: float


@dataclass
class ExperimentConfig:
    """Which table or figure a run belongs to, and how a report shows it.

    Attributes:
        id: its name, and the folder of its runs.
        title: what it shows, in a line.
        source: the paper: mft | pfml | metrix | ccp.
        tables: that paper's tables with its numbers (`T1`, `text`).
        metrics: that they print, the first one to be tested for significance.
        spread: what stands behind ±: ci95 | std | none.
        setting: how the paper's tables tell this run from others of the same method.
        figures: kinds of pictures (`dml.reporting.figure_kinds`).
        params: table of `configs/params` whose values hold where no override says otherwise.
        script: command that draws it, from runs or by itself.
        trains: false: there is nothing to train, the script is all.
        gpu_hours: of all its trainings, estimated by the rule of `dml.reporting.cost`.
    """

    id: str
    title: str
    source: str | None
    tables: list[str]
    metrics: list[str]
    spread: str
    setting: str | None
    figures: list[str]
    params: str | None
    script: str | None
    trains: bool
    gpu_hours: float | None


@dataclass
class Config:
    """A whole run."""

    seed: int
    device: str
    precision: str
    channels_last: bool
    compile: bool
    outputs: str
    overwrite: bool
    max_minutes: float | None
    experiment: ExperimentConfig
    data: DataConfig
    transform: TransformConfig
    backbone: dict[str, Any]
    embedder: dict[str, Any]
    optim: OptimConfig
    loss: dict[str, Any]
    method: dict[str, Any]
    protocol: ProtocolConfig
    evaluation: EvaluationConfig
    tracking: dict[str, Any]
    search: SearchConfig | None
    space: dict[str, Any]


@dataclass
class EvaluateConfig(Config):
    """What `evaluate.py` takes beside the options of a training run."""

    run: str | None
    embeddings: str | None
    save: str | None
    recall_at: list[int] | None


IN_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    dict: "a node of options",
}


def in_words(kind: Any) -> str:
    """A type of a field above, as a message for the user names it."""
    if kind in IN_WORDS:
        return IN_WORDS[kind]
    if get_origin(kind) is list:
        return f"a list, each {in_words(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return IN_WORDS[dict]
    # lists last: "each …" would take in what follows
    kinds = sorted(get_args(kind), key=lambda one: get_origin(one) is list)
    return " or ".join(in_words(one) for one in kinds)


def shown(value: object) -> str:
    """A value as the user wrote it, for a message."""
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else str(value)
