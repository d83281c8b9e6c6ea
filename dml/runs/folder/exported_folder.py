"""The folder of an exported network: its files, and whether they belong together.

`config.yaml` and the weights carry one digest, so that a config beside the weights of another
network is noticed. Exports of earlier versions carry none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from torch import Tensor

from dml.core.errors import UserError
from dml.core.outputs import BEGINNING, begins_with, text_mark
from dml.core.regular_files import open_regular, read_regular
from dml.core.replaced_folder import MARK
from dml.retrieval.embeddings import read_origin
from dml.retrieval.query_scores import PER_QUERY
from dml.runs.folder.stored_run import WEIGHTS, read_config

CONFIG, BEST = "config.yaml", "best.yaml"
ONNX, CARD = "model.onnx", "README.md"
EXPORTED, PREPROCESSOR, SCRIPT = "model.pt2", "preprocessor_config.json", "embed_onnx.py"
BYTECODE = "__pycache__"  # of the script
SCORES, EMBEDDINGS = "evaluation.json", "embeddings.npz"  # of `dml evaluate run=<the folder>`
PAGE, TABLE = "errors.html", "per_query.csv"  # of the same command with `errors` and `per_query`
ERRORS_OF = "errors of "  # begins the origin of such a page (`dml.core.outputs.text_mark`)
EVALUATED = (SCORES, EMBEDDINGS, PAGE, TABLE)
FORMS = (ONNX, f"{ONNX}.data", EXPORTED, PREPROCESSOR, SCRIPT)  # for other programs
FILES = (CONFIG, BEST, WEIGHTS, CARD, *FORMS, *EVALUATED)
SCORE_KEYS = {"name", "stand_in", "embedding_size", "metrics"}
DIGEST, CARD_DIGEST = "dml_export", "dml_card"  # in the metadata of the weights
RUN_DIGEST = "dml_run"  # there: of the run that was exported, of a search as it was started
LINE = "# exported with the weights "  # the last line of the config, before the digest
NODES = {"data", "loss", "method", "backbone", "embedder", "protocol"}  # of every config
SCRIPT_LINE = "# as exported: "  # the last line of the script, before the digest of the rest
SEAL = "export_digest"  # field of the preprocessor's file, with the digest of the others
METADATA = "metadata.json"  # in a program of `torch.export`
WEIGHTS_DIGEST = "weights_digest"  # in the metadata of the forms
HEADER_BYTES = 100 << 20  # of safetensors' own limit


def hash_bytes(content: bytes) -> str:
    """Returns the digest that files of an export carry."""
    return hashlib.sha256(content).hexdigest()[:16]


def digest_export(texts: Mapping[str, str], weights: Mapping[str, Tensor]) -> str:
    """Returns the digest of a network: of its config, the best values of its search, its weights.

    Args:
        texts: name of the file → its text.
        weights: on the CPU.
    """
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(f"{name}\n{texts[name]}\n".encode())
    for name in sorted(weights):
        value = weights[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def write_digest(config: str, digest: str) -> str:
    """Returns the text of a config with the digest."""
    return f"{config.rstrip()}\n{LINE}{digest}\n"


def drop_digest(config: str) -> str:
    """Returns the text of a config without a digest, of a run or of another export."""
    return re.sub(rf"^{re.escape(LINE)}\w*\n?", "", config, flags=re.MULTILINE)


def seal_script(text: str) -> str:
    """Returns a script with a last line by which an edited one is noticed."""
    return f"{text}{SCRIPT_LINE}{hash_bytes(text.encode())}\n"


def _is_sealed_script(path: Path) -> bool:
    text, _, digest = read_regular(path).decode().rpartition(SCRIPT_LINE)
    return digest.strip() == hash_bytes(text.encode())


def seal_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of a JSON file with one by which an edited file is noticed."""
    return {**fields, SEAL: hash_bytes(json.dumps(fields, sort_keys=True).encode())}


def _is_sealed_json(path: Path) -> bool:
    fields = json.loads(read_regular(path))
    return bool(seal_fields({k: v for k, v in fields.items() if k != SEAL}) == fields)


def _is_exported_program(path: Path) -> bool:
    with open_regular(path) as file, ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith(f"/{METADATA}"):
                return WEIGHTS_DIGEST in json.loads(archive.read(name))
    return False


def _read_digest(folder: Path) -> str | None:
    text = read_regular(folder / CONFIG).decode("utf-8", "replace")
    match = re.search(rf"^{re.escape(LINE)}(\w+)\s*$", text, re.MULTILINE)
    return None if match is None else match[1]


def _read_metadata(weights: Path) -> dict[str, str]:
    """Returns the metadata of a file of safetensors.

    Raises:
        ValueError: it is not such a file.
        OSError: it cannot be read.
    """
    with open_regular(weights) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(HEADER_BYTES, os.fstat(file.fileno()).st_size):
            raise ValueError("not a file of safetensors")
        header = json.loads(file.read(length))
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("not a file of safetensors")
    return metadata


def check_belonging(folder: Path) -> None:
    """Checks that config and weights of an exported network are of one export.

    They are if both carry the same digest, or neither carries any.

    Raises:
        UserError: they are not, or cannot be read.
    """
    try:
        of_weights = _read_metadata(folder / WEIGHTS).get(DIGEST)
        of_config = _read_digest(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"load: {folder / WEIGHTS} is damaged or of another network: {reason}"
        ) from error
    if of_weights != of_config:
        raise UserError(
            f"load: {CONFIG} and {WEIGHTS} in {folder} are of two exports; export the network again"
        )


def check_target(target: Path, run: Path) -> None:
    """Checks that a network may be exported to a folder: it is new, empty, or an earlier export.

    Scores and embeddings that `dml evaluate` has written there belong to the earlier network.

    Args:
        target: the folder, without links in its path.
        run: folder of the network that is exported.

    Raises:
        UserError: the folder is or holds something else.
    """
    if not os.path.lexists(target):
        return
    if not stat.S_ISDIR(os.stat(target).st_mode):
        raise UserError(f"export: {target}: File exists; give the name of a folder")
    if run.is_dir() and os.path.samefile(target, run):
        raise UserError(f"export: {target} is the folder that is exported; choose another one")
    if os.path.samefile(target, os.curdir) or os.path.ismount(target):
        raise UserError(
            f"export: {target} is the current folder, or a mounted one, and cannot be replaced as "
            "a whole; choose a folder in it"
        )
    others = sorted(path.name for path in target.iterdir() if not _may_be_ours(path))
    if others:
        raise UserError(
            f"export: {target} holds {_list(others)}, which no export has written; choose another "
            "folder"
        )
    if any(target.iterdir()) and not _is_export(target):
        raise UserError(
            f"export: {target} holds files that are not of an earlier export, or were changed "
            "since; choose another folder"
        )


def _is_bytecode(folder: Path) -> bool:
    """Returns whether a folder holds what Python keeps of the script, where it was imported."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    prefix = f"{Path(SCRIPT).stem}."
    names = [path.name for path in folder.iterdir()]
    return all(name.startswith(prefix) and name.endswith(".pyc") for name in names)


def remove_bytecode(target: Path) -> None:
    """Removes what Python keeps of the script of an export that is replaced."""
    folder = target / BYTECODE
    if _is_bytecode(folder):
        with suppress(OSError):  # then replacing fails, and says why
            shutil.rmtree(folder)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _may_be_ours(path: Path) -> bool:
    if path.name == BYTECODE:
        return _is_bytecode(path)
    if path.name not in (*FILES, MARK) or not stat.S_ISREG(path.lstat().st_mode):
        return False
    try:
        return path.name not in IS_OURS or IS_OURS[path.name](path)
    except Exception:  # of many classes, for bytes of any kind
        return False


def _is_evaluation(path: Path) -> bool:
    """Returns whether a file was written by an evaluation of a network."""
    if path.name == PAGE:  # of any evaluation: the mark without its end
        with open_regular(path) as file:
            return text_mark(ERRORS_OF).encode()[:-4] in file.read(BEGINNING)
    if path.name == TABLE:
        return begins_with(",".join(PER_QUERY))(path)
    if path.name == EMBEDDINGS:
        return (read_origin(path) or "").startswith("evaluate ")
    stored = json.loads(read_regular(path))
    return isinstance(stored, dict) and stored.keys() - {"source"} == SCORE_KEYS


def _is_export(folder: Path) -> bool:
    """Returns whether a folder of such names holds an export, of this or of an earlier version."""
    try:
        metadata = _read_metadata(folder / WEIGHTS)
        content = read_config(folder / CONFIG)
        return metadata.get(DIGEST) == _read_digest(folder) and content.keys() >= NODES
    except (OSError, ValueError):
        return False


def read_run_digest(folder: Path) -> str | None:
    """Returns the digest of the run of an export; None: it tells none."""
    try:
        return _read_metadata(folder / WEIGHTS).get(RUN_DIGEST)
    except (OSError, ValueError):
        return None


def read_edited_card(folder: Path) -> bytes | None:
    """Returns the model card of an export if it was edited since; None: it was not, or is gone.

    What an earlier version has written counts as edited.
    """
    try:
        card = read_regular(folder / CARD)
        written = _read_metadata(folder / WEIGHTS).get(CARD_DIGEST)
    except (OSError, ValueError):
        return None
    return None if hash_bytes(card) == written else card


IS_OURS: dict[str, Callable[[Path], bool]] = {
    SCRIPT: _is_sealed_script,
    PREPROCESSOR: _is_sealed_json,
    EXPORTED: _is_exported_program,
    **dict.fromkeys(EVALUATED, _is_evaluation),
}
