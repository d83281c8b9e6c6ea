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
license: other  # TODO: the license of the weights, which that of the images may limit
library_name: dml-benchmark
tags: [metric-learning, image-retrieval, feature-extraction]
---

# {title}

{backbone} that embeds images in {size} dimensions, so that neighbors are of the same class.

| | |
|---|---|
{rows}

{scores}

```python
import dml

embedder, transform = dml.load("<this folder, or user/name on the hub>")
```
"""


def write_card(run_folder: str | Path, folder: Path) -> Path:
    """Writes the model card of an exported run: data, loss, protocol, scores; returns its path.

    Raises:
        UserError: a file cannot be read.
    """
    config: dict[str, Any] = read_json(folder / CONFIG) or {}
    summary, training = read_json(RunFolder(run_folder).summary), config["training"]
    _, embedder = open_network(folder)
    scores = "The run is not finished: no scores."
    if summary is not None:
        cells = {
            metric_label(name): f"{100 * value['mean']:.2f}"
            for name, value in summary["metrics"].items()
            if is_retrieval_metric(name)
        }
        scores = (
            f"Scores of the run in percent, on {summary['classes_tested']}, best epoch by "
            f"{summary['selected_by']}:\n\n| {' | '.join(cells)} |\n{'|---' * len(cells)}|\n"
            f"| {' | '.join(cells.values())} |"
        )
    text = TEXT.format(
        title=f"{training['loss']} on {training['data']}",
        backbone=config["backbone"].get("name"),
        size=embedder.embedding_size,
        rows="\n".join(f"| {name} | {value} |" for name, value in training.items()),
        scores=scores,
    )
    write_text(folder / CARD, text)
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
    with replace_file(folder / ONNX) as temporary:
        try:
            torch.onnx.export(
                embedder,
                (images,),
                temporary,
                input_names=["images"],
                output_names=["embeddings"],
                dynamic_shapes=(dims,),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # of many classes, of torch and of its converter
            raise UserError(f"onnx: this network has no ONNX form: {first_line(error)}") from error
        return _check_onnx(temporary, embedder, torch.rand(3, *images.shape[1:]))


def _check_onnx(path: Path, embedder: torch.nn.Module, images: torch.Tensor) -> float | None:
    if find_spec("onnxruntime") is None:
        return None
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"images": images.numpy()})
    with torch.inference_mode():
        difference = float(np.abs(found - embedder(images).numpy()).max())
    if not difference <= TOLERANCE:
        raise UserError(f"onnx: differs from PyTorch by {difference:.1e}, more than {TOLERANCE}")
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
