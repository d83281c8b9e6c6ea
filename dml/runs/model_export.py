"""What accompanies an exported network: an ONNX file, a model card, an upload to the hub."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dml.core.atomic_io import read_json, replace_file, write_text
from dml.core.errors import UserError, first_line
from dml.core.metric_names import is_retrieval_metric, metric_label
from dml.runs.folder.run_folder import RunFolder
from dml.runs.load import CONFIG, WEIGHTS, open_network

ONNX, CARD = "model.onnx", "README.md"
TOLERANCE = 1e-5  # largest difference of an embedding's values between ONNX Runtime and PyTorch
TEXT = """\
---
license: other  # TODO: the license of the weights; that of the images may limit it
library_name: dml-benchmark
tags: [metric-learning, image-retrieval, feature-extraction]
---
# {loss} on {data}

A network ({backbone}) that embeds images in {size} dimensions, trained to bring a class together.
`embedder, transform = dml.load(<this folder, or its name on the hub>)` loads it.

Data {data}, loss {loss}, method {method}, protocol {protocol}, seed {seed}, repeat {repeat}, fold
{fold}. {scores}
"""


def write_card(run_folder: str | Path, folder: Path) -> Path:
    """Writes the model card of an exported run: data, loss, protocol, scores; returns its path.

    Raises:
        UserError: a file cannot be read.
    """
    config: dict[str, Any] = read_json(folder / CONFIG) or {}
    summary = read_json(RunFolder(run_folder).summary)
    scores, backbone = (
        "No scores: it is not finished, or has no test.",
        config["backbone"].get("name"),
    )
    if summary is not None and summary["metrics"]:
        means = {name: 100 * value["mean"] for name, value in summary["metrics"].items()}
        cells = [f"{metric_label(n)} {v:.2f}" for n, v in means.items() if is_retrieval_metric(n)]
        scores = f"Mean of the run's models, percent on {summary['classes_tested']}, best epoch by "
        scores += f"{summary['selected_by']}:\n\n- " + "\n- ".join(cells)
    size = open_network(folder)[1].embedding_size
    card = TEXT.format(**config["training"], backbone=backbone, size=size, scores=scores)
    write_text(folder / CARD, card)
    return folder / CARD


def export_onnx(folder: Path) -> float | None:
    """Writes `model.onnx` beside an exported network, for any number of images in a batch.

    Its input `images` is B×3×H×W, prepared by the transform of `dml.load`, its output `embeddings`
    B×D.

    Returns:
        The largest difference of a value from PyTorch's; None if ONNX Runtime is not installed.

    Raises:
        UserError: a package is missing, the network cannot be exported, or it differs.
    """
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise UserError(f"onnx: {missing[0]} is not installed: pip install onnx onnxscript")
    config, embedder = open_network(folder)
    size, auto = config.transform.size or embedder.input.size, torch.export.Dim.AUTO
    images = torch.rand(2, 3, size or 64, size or 64)
    dims = {0: auto} if size else {0: auto, 2: auto, 3: auto}
    options: dict[str, Any] = {"input_names": ["images"], "output_names": ["embeddings"]}
    options |= {"dynamic_shapes": (dims,), "dynamo": True, "external_data": False, "verbose": False}
    with replace_file(folder / ONNX) as temporary:
        try:
            torch.onnx.export(embedder, (images,), temporary, **options)
        except Exception as error:  # of many classes, of torch and of its converter
            raise UserError(f"onnx: this network has no ONNX form: {first_line(error)}") from error
        if find_spec("onnxruntime") is None:
            return None
        from onnxruntime import InferenceSession

        session = InferenceSession(temporary, providers=["CPUExecutionProvider"])
        images = torch.rand(3, *images.shape[1:])
        (found,) = session.run(None, {"images": images.numpy()})
        with torch.inference_mode():
            difference = float(np.abs(found - embedder(images).numpy()).max())
        if not difference <= TOLERANCE:
            raise UserError(f"onnx: differs from PyTorch by {difference:.1e} > {TOLERANCE}")
    return difference


def push(folder: Path, hub_id: str) -> str:
    """Uploads an exported network to the Hugging Face hub; returns the address of its page.

    A new model is private until its owner changes that.

    Raises:
        UserError: there is no connection or no permission.
    """
    from huggingface_hub import HfApi

    try:
        hub, files = HfApi(), [CONFIG, WEIGHTS, ONNX, CARD]
        address = hub.create_repo(hub_id, private=True, exist_ok=True)
        hub.upload_folder(repo_id=hub_id, folder_path=folder, allow_patterns=files)
    except Exception as error:  # of many classes: no connection, no token, a wrong name
        raise UserError(f"push: {hub_id}: {first_line(error)}; hf auth login") from error
    return str(address)
