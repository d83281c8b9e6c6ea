"""The files of an export for programs without this package.

`model.onnx` and `model.pt2` map images B×3×H×W to embeddings B×D, for any number of images. They
carry what their user must know (`describe_form`), and `preprocessor_config.json` describes how
images are prepared. `embed_onnx.py` embeds image files by the ONNX form.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dml.config.schema import Config
from dml.core.atomic_io import replace_file, write_json, write_text
from dml.core.errors import first_line
from dml.data.image_dataset import ImageDataset
from dml.data.image_index import Subset
from dml.models.embedder import Embedder, hash_weights
from dml.models.traced_form import TracedForm, make_exported, make_onnx
from dml.runs.build import Builder
from dml.runs.folder.exported_folder import (
    EXPORTED,
    METADATA,
    ONNX,
    PREPROCESSOR,
    SCRIPT,
    WEIGHTS_DIGEST,
    seal_fields,
    seal_script,
)
from dml.runs.preprocessor import preprocessor_config

SIZES = 20  # images whose size is compared
USUAL_SIZE = 64, 64  # pixels, where the images of a run are gone
TEMPLATE = Path(__file__).parent / "templates" / SCRIPT


def write_form_files(
    folder: Path, config: Config, embedder: Embedder, forms: Collection[str], run_digest: str
) -> dict[str, float]:
    """Writes forms of an exported network, and how images are prepared for them.

    They are traced at the size of the run's images. Height and width stay free if the run does not
    fix them and the result agrees with PyTorch at other sizes too. A transform of the user has no
    description: a warning says so, and the two files of the preparation are left out.

    Args:
        folder: of the export.
        config, embedder: as `dml.runs.load.open_network` returns them for the folder.
        forms: names of `FORMS`.
        run_digest: of the run that was exported.

    Returns:
        Name of the file of each form → largest difference of its embeddings from PyTorch's.

    Raises:
        UserError: a package is missing, the network has no such form, or the difference is large.
        OSError: a file cannot be written.
    """
    size = config.transform.size or embedder.input.size
    height, width = (size, size) if size else _image_size(config, embedder)
    differences = {}
    for name in forms:
        file, make, save = FORMS[name]
        form = make(embedder, height, width, may_be_free=size is None)
        shape = None if form.is_free else (height, width)
        save(form, folder / file, describe_form(embedder, shape, run_digest))
        differences[file] = form.difference
    test = Builder(config).transforms(embedder).test
    fields = preprocessor_config(test, embedder.input, config.data.background)
    if fields is None:
        warnings.warn(
            f"transform._target_: a class of yours prepares images, which {PREPROCESSOR} cannot "
            f"describe; it is not written",
            stacklevel=4,
        )
        return differences
    write_json(folder / PREPROCESSOR, seal_fields(fields))
    if "onnx" in forms:
        write_text(folder / SCRIPT, seal_script(TEMPLATE.read_text(encoding="utf-8")))
    return differences


def describe_form(
    embedder: Embedder, shape: tuple[int, int] | None, run_digest: str
) -> dict[str, Any]:
    """Returns the metadata of a form.

    Args:
        embedder: the network.
        shape: height and width of its images in pixels; None: any.
        run_digest: of the run: the end of its folder's name.
    """
    spec = embedder.input
    return {
        "image_size": shape,
        "image_mean": spec.mean,
        "image_std": spec.std,
        "rescale_factor": spec.scale / 255,
        "channel_order": spec.channel_order,
        "embedding_size": embedder.embedding_size,
        "normalize": embedder.normalize,
        "run_digest": run_digest,
        WEIGHTS_DIGEST: hash_weights(embedder),
    }


def _save_onnx(form: TracedForm, path: Path, metadata: dict[str, Any]) -> None:
    """Saves a form of ONNX. Texts of the metadata are as they are, other values JSON.

    The path is that of the result: above 2 GB the weights are in a file beside it, which the form
    names.
    """
    for key, value in metadata.items():
        form.program.model.metadata_props[key] = (
            value if isinstance(value, str) else json.dumps(value)
        )
    form.program.save(path)


def _save_exported(form: TracedForm, path: Path, metadata: dict[str, Any]) -> None:
    """Saves a program of `torch.export` with its metadata in a file of the archive."""
    extra = {METADATA: json.dumps(metadata)}
    # To an open file: given a path, the names of the archive would begin with the temporary one.
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        torch.export.save(form.program, file, extra_files=extra)


FORMS: dict[str, tuple[str, Callable[..., TracedForm], Callable[..., None]]] = {
    "onnx": (ONNX, make_onnx, _save_onnx),
    "torch_export": (EXPORTED, make_exported, _save_exported),
}


def _image_size(config: Config, embedder: Embedder) -> tuple[int, int]:
    """Returns height and width of a run's images, which keep the size of the dataset's.

    If they cannot be read, or differ, a warning says what is used instead.
    """
    builder = Builder(config)
    try:
        index = builder.index()
        images = ImageDataset(
            Subset(index, np.arange(len(index.images))), builder.transforms(embedder).test
        )
        rows = range(0, len(images), 1 + len(images) // SIZES)
        sizes = Counter(tuple(images[row][0].shape[1:]) for row in rows)
    except Exception as error:  # of many classes: the images may be gone, or damaged
        reason = f"the run's images cannot be read ({first_line(error)})"
        sizes = Counter({USUAL_SIZE: 1})
    else:
        reason = f"the run's images have {len(sizes)} sizes"
        if len(sizes) == 1:
            reason = ""
    (height, width), _ = sizes.most_common(1)[0]
    if reason:
        warnings.warn(
            f"export: {reason}; the network is traced for {height}x{width} pixels", stacklevel=5
        )
    return height, width
