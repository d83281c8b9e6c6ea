"""Export of trained networks: `dml.export`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from dml.config.check import check
from dml.config.schema import Config
from dml.core.atomic_io import replace_file, write_bytes, write_text
from dml.core.errors import UserError, first_line
from dml.core.fault_injection import fault_point
from dml.core.metric_names import is_score, metric_label
from dml.core.regular_files import check_possible, read_regular_text
from dml.core.replaced_folder import recover_folder, replace_folder
from dml.models.embedder import Embedder
from dml.models.lora import merge_adapters
from dml.runs.console import describe_thresholds
from dml.runs.exported_forms import write_form_files
from dml.runs.folder.exported_folder import (
    CARD,
    CARD_DIGEST,
    DIGEST,
    FILES,
    RUN_DIGEST,
    check_target,
    digest_export,
    drop_digest,
    hash_bytes,
    read_edited_card,
    read_run_digest,
    remove_bytecode,
    write_digest,
)
from dml.runs.folder.run_folder import RunFolder, load_config, load_options
from dml.runs.folder.stored_run import WEIGHTS
from dml.runs.load import load_embedder, open_network, warn_of_changed_code
from dml.runs.network_options import check_model
from dml.training.process_state import restored_process_state

TEXT = """\
---
license: other  # TODO: the license of the weights; that of the images may limit it
library_name: dml-benchmark
tags: [metric-learning, image-retrieval, feature-extraction]
---
# {c.loss[name]} on {c.data.variant}

A network ({c.backbone[name]}) that embeds images in {network.embedding_size} dimensions, trained to
bring a class together. `embedder, transform = dml.load(<this folder>)` loads it.

Input: {input}.

Data {c.data.variant}, loss {c.loss[name]}, method {c.method[name]}, protocol {c.protocol.name},
seed {c.seed}, repeat {repeat}, fold {fold}. {scores}
"""


class Exported(NamedTuple):
    """What an export has written.

    Attributes:
        folder: its folder.
        card_kept: True if a model card was there that somebody had edited, which stays.
        differences: name of the file of each form for other programs → largest difference of its
            embeddings from those of PyTorch.
    """

    folder: Path
    card_kept: bool
    differences: dict[str, float]


def export(
    run_folder: str | Path,
    folder: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    *,
    trust: bool = False,
) -> Path:
    """Writes a model of a run to a folder that `dml.load` reads without the run.

    `config.yaml` is that of the run, `model.safetensors` holds the weights, and `README.md` is a
    card for the Hugging Face hub with data, loss, protocol, scores and the form of the input.

    Args:
        run_folder: a run folder.
        folder: is created if necessary; an earlier export in it is replaced as a whole, except for
            a card that was edited.
        repeat, fold, trust: see `dml.load`.

    Returns:
        The folder.

    Raises:
        UserError: the folder is not a run folder, or has no such model; the folder of the export
            holds files that no export wrote.
        OSError: a file cannot be written; nothing has changed then.
    """
    return write_export(run_folder, folder, repeat, fold, trust=trust).folder


@restored_process_state()
def write_export(
    run_folder: str | Path,
    folder: str | Path,
    repeat: int | None = None,
    fold: int | None = None,
    onnx: bool = False,
    trust: bool = False,
    torch_export: bool = False,
) -> Exported:
    """Writes an export; see `export`, and `write_forms` for `onnx` and `torch_export`."""
    check_model(run_folder, repeat, fold, WEIGHTS)
    run = RunFolder(run_folder)
    check_possible(folder)
    target = Path(os.path.realpath(folder))
    recover_folder(target)
    check_target(target, run.path)
    config = load_config(run.path, trust=trust)
    warn_of_changed_code(config, run.path)
    embedder = load_embedder(config, run.path, repeat, fold)
    merge_adapters(embedder)
    # Copies: safetensors refuses tensors that share memory.
    weights = {name: value.clone() for name, value in embedder.state_dict().items()}
    card = _describe_network(config, embedder, run, (repeat or 0, fold or 0))
    edited, differences = read_edited_card(target), {}
    chosen = {"onnx": onnx, "torch_export": torch_export}
    forms = [name for name, is_chosen in chosen.items() if is_chosen]
    remove_bytecode(target)
    with replace_folder(target, FILES) as new:
        digest = _write_texts(new, run, weights)
        metadata = {"format": "pt", DIGEST: digest, CARD_DIGEST: hash_bytes(card.encode())}
        metadata[RUN_DIGEST] = _find_run_digest(run.path, trust)
        _save_weights(weights, new / WEIGHTS, metadata)
        write_bytes(new / CARD, card.encode() if edited is None else edited)
        fault_point("export_written")
        if forms:
            differences = write_forms(new, forms, trust)
    return Exported(Path(folder), edited is not None, differences)


def _write_texts(folder: Path, run: RunFolder, weights: dict[str, Tensor]) -> str:
    """Writes the config of a network, and returns the digest of texts and weights.

    After a search it holds the values that were found: it is read alone, as from the hub.
    """
    texts = {}
    if run.trained.exists():
        texts[run.config.name] = drop_digest(read_regular_text(run.trained))
    else:
        for source in (run.config, run.best):
            if source.exists():
                texts[source.name] = drop_digest(read_regular_text(source))
    digest = digest_export(texts, weights)
    texts[run.config.name] = write_digest(texts[run.config.name], digest)
    for name, text in texts.items():
        write_text(folder / name, text)
    return digest


def _describe_network(
    config: Config, embedder: Embedder, run: RunFolder, model: tuple[int, int]
) -> str:
    """Returns the card of a network; `model` is its repeat and fold."""
    repeat, fold = model
    return TEXT.format(
        c=config,
        network=embedder,
        input=_describe_input(config, embedder),
        scores=_describe_scores(run, model),
        repeat=repeat,
        fold=fold,
    )


def _describe_input(config: Config, embedder: Embedder) -> str:
    """Returns how an image becomes an input of a network, for its card."""
    spec = embedder.input
    side = config.transform.size or spec.size
    size = "images as large as those of the data, which are not resized"
    if side is not None:
        size = f"images of {side} x {side} pixels"
    return (
        f"{size}, channels {spec.channel_order}, values from 0 to {spec.scale:g}, normalized by "
        f"mean {_join(spec.mean)} and std {_join(spec.std)}; the transform that is loaded does so"
    )


def _join(numbers: Sequence[float]) -> str:
    """Returns numbers as `(0.485, 0.456, 0.406)`."""
    texts = [f"{number:g}" for number in numbers]
    return f"({', '.join(texts)})"


def _describe_scores(run: RunFolder, model: tuple[int, int]) -> str:
    """Returns the scores of a run, and the thresholds of a model, for its card.

    Args:
        run: its folder.
        model: repeat and fold.
    """
    summary = run.read_summary()
    if summary is None or not summary["metrics"]:
        return "No scores: it is not finished, or has no test."
    lines = [
        f"{_describe_models(summary)}, percent on {summary['classes_tested']}, best epoch by "
        f"{summary['selected_by']}:\n"
    ]
    for name, value in summary["metrics"].items():
        if is_score(name):
            lines.append(f"- {metric_label(name)} {100 * value['mean']:.2f}")
    thresholds: list[str] = []
    for job in summary["jobs"]:
        if (job["repeat"], job["fold"]) == model:
            thresholds = describe_thresholds(job["metrics"])
    if thresholds:
        lines.append("\nTwo images match if their embeddings are nearer than a threshold:\n")
        lines += [f"- {line}" for line in thresholds]
    return "\n".join(lines)


def _describe_models(summary: Mapping[str, Any]) -> str:
    """Returns of what the scores of a run are."""
    number = len(summary["jobs"])
    return "Scores" if number == 1 else f"Mean of the run's {number} models"


def _save_weights(weights: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    try:
        with replace_file(path) as temporary:
            save_file(weights, temporary, metadata=metadata)
    except SafetensorError as error:  # of the disk: it does not raise OSError
        raise UserError(f"export: the weights cannot be written ({first_line(error)})") from error


@restored_process_state()
def write_forms(folder: Path, forms: Collection[str], trust: bool = False) -> dict[str, float]:
    """Writes forms of an exported network for other programs; see `dml.runs.exported_forms`.

    Args:
        folder: of the export.
        forms: names of `dml.runs.exported_forms.FORMS`.
        trust: see `dml.load`.

    Returns:
        Name of the file of each form → largest difference of its embeddings from PyTorch's.

    Raises:
        UserError: a package is missing, the network has no such form, or the difference is large.
        OSError: a file cannot be written.
    """
    config, embedder = open_network(folder, trust=trust)
    run_digest = _find_run_digest(folder, trust)
    return write_form_files(folder, config, embedder, forms, run_digest)


def _find_run_digest(folder: Path, trust: bool) -> str:
    """Returns the digest of a run, or of the run of an export: the end of the run folder's name."""
    return read_run_digest(folder) or check(load_options(folder, trust)).digest
