"""Names of run folders: `seed0-epochs60-lr0.0003-1a2b3c4d`.

The digest at the end identifies the run (`dml.config.identity`). The words before it, taken from
the options that were typed, tell readers what differs, and decide nothing: a folder with the digest
is found whatever its other words are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.identity import identity

MAX_LENGTH = 60  # characters of the description
MAX_VALUE = 24  # characters of one value
# Groups in the name of the parent folder, options that are in the name anyway, places.
NOT_DESCRIBED = {"data", "protocol", "loss", "method", "backbone", "experiment", "seed"}
NOT_DESCRIBED |= {"data.root", "data.reader.root"}


def find_run_folder(home: Path, seed: int, digest: str, description: str = "") -> Path:
    """Returns the folder of a run: an existing one with the digest, or a new one.

    Of several existing folders it is the one with the most progress.

    Args:
        home: folder of the runs with the same data, protocol, loss, method and backbone.
        seed: of the run.
        digest: of its config.
        description: words for a new folder; see `describe_overrides`.
    """
    existing = [path for path in home.glob(f"*-{digest}") if path.is_dir()]
    if existing:
        return max(existing, key=lambda path: (_progress(path), path))
    return home / "-".join(filter(None, (f"seed{seed}", description, digest)))


def _progress(folder: Path) -> int:
    files = ("summary.json", "history.csv", "config.yaml")
    return next((len(files) - n for n, name in enumerate(files) if (folder / name).exists()), 0)


def describe_overrides(cfg: DictConfig, overrides: Sequence[str]) -> str:
    """Returns the typed options that decide the result, as `epochs60-lr0.0003`.

    Options are sorted by name, so that their order in the command does not matter; those that do
    not fit in `MAX_LENGTH` are counted.

    Args:
        cfg: as composed.
        overrides: words of the command line: `protocol.epochs=60`.
    """
    words = list(_describe_all(cfg, overrides))
    shown: list[str] = []
    while words and len("-".join([*shown, words[0]])) <= MAX_LENGTH:
        shown.append(words.pop(0))
    return "-".join([*shown, f"{len(words)}_more"] if words else shown)


def _describe_all(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    deciding = identity(cfg)
    typed: dict[str, str] = {}
    for word in overrides:
        name, _, value = word.partition("=")
        typed[name.lstrip("+~").partition("@")[0]] = value
    for name in sorted(typed, key=lambda name: name.rpartition(".")[2]):
        if name in NOT_DESCRIBED or not _decides(cfg, deciding, name):
            continue
        value = OmegaConf.select(cfg, name, default=typed[name])
        is_node = OmegaConf.is_config(value) and not OmegaConf.is_list(value)
        text = _format_value(typed[name] if is_node else value)
        between = "" if text[:1].isdigit() or text[:1] == "-" else "_"
        yield f"{_clean(name.rpartition('.')[2].strip('_'))}{between}{text}"


def _decides(cfg: DictConfig, deciding: Mapping[str, Any], name: str) -> bool:
    """Returns True for options of the identity, and groups such as `scale` that set several."""
    if "." not in name and name not in cfg:
        return True
    return any(f"{one}.".startswith(f"{name}.") for one in deciding)


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if OmegaConf.is_list(value):
        return _clean("+".join(map(str, value)))
    return _clean(str(value).rstrip("/").rpartition("/")[2].removesuffix(".yaml"))


def _clean(text: str) -> str:
    """Returns text with the characters that are safe in file names and on command lines."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "_", text).strip("_")[:MAX_VALUE]
