"""The page of protocols: every setting side by side, and what changes on a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from dml.config.identity import flatten
from dml.core.installation import CONFIGS
from scripts.docs.departures import tabulate_departures
from scripts.docs.markdown import NOTE, code, table

PROTOCOLS = {
    "mlrc": "bn_inception",
    "mlrc_ccp": "bn_inception",
    "holdout": "bn_inception",
    "validation": "bn_inception",
    "closed_set": "bn_inception",
    "traditional": "bn_inception",
    "conventional": "bn_inception",
    "pfml": "resnet50",
    "metrix": "resnet50",
}
DATASETS = ("cars", "sop", "inshop")
NONE = "\N{EN DASH}"
HIDDEN = (
    "defaults",
    "protocol.name",
    "protocol.result_id",
    "data.name",
    "optim.name",
)
RENAMED = {"optim._target_": "optimizer", "optim.schedule._target_": "optim.schedule"}
TEXT = """{note}
# Settings of the protocols

Read from `configs/protocol/`, composed for CUB and the first network of the paper, for losses with
proxies or mean fields (losses of pairs take four images of a class under `mlrc`, `mlrc_ccp`,
`holdout`, `validation` and `closed_set`). A dash means: none. `all_classes`, which trains on all
classes and scores nothing, and `mlrc_features`, for stored features, have no column.
[Protocols](../concepts/protocols.md) says which to choose.

{settings}

## Other datasets

What changes on Cars, SOP and In-Shop:

{recipes}

## Where papers, authors' code and this framework differ

{departures}

[All differences](../fidelity.md#departures), those of losses, networks and datasets too
"""


def make_protocol_page() -> dict[str, str]:
    """Returns the page by its path."""
    tables = {"settings": _settings_table(), "recipes": _recipes_table()}
    text = TEXT.format(note=NOTE, departures=tabulate_departures("protocol/"), **tables)
    return {"reference/protocols.md": text}


def _settings_table() -> str:
    """Returns a table with a row for each option that a protocol sets."""
    configs, options = [], set()
    for name in PROTOCOLS:
        configs.append(_compose(name, "cub"))
        options |= _options_of(name)
    rows = [["backbone", *PROTOCOLS.values()]]
    for option in sorted(options - {"optim.schedule"}, key=_order):
        values = [_cell(OmegaConf.select(config, option)) for config in configs]
        if set(values) != {NONE}:
            rows.append([_name(option), *values])
    return table(["option", *map(code, PROTOCOLS)], rows)


def _recipes_table() -> str:
    """Returns a table of what a protocol changes on a dataset."""
    rows = []
    for protocol in PROTOCOLS:
        for data in DATASETS:
            changes = "; ".join(_changes(protocol, data))
            if changes:
                rows.append([code(protocol), code(data), changes])
    return table(["protocol", "dataset", "changes"], rows)


def _changes(protocol: str, data: str) -> Iterator[str]:
    """Yields the options of a protocol whose values differ from those on CUB."""
    recipes = (f"{protocol}_cub", f"{protocol}_{data}")
    options = _options_of(protocol).union(*(_read("recipe", name) for name in recipes))
    for option in sorted(options, key=_order):
        usual = OmegaConf.select(_compose(protocol, "cub"), option)
        value = OmegaConf.select(_compose(protocol, data), option)
        if value != usual:
            yield f"{_name(option)} {_cell(value)}"


def _options_of(protocol: str) -> set[str]:
    """Returns the options that a protocol's file sets, and its optimizer's class and arguments."""
    optimizer = {"optim._target_", "optim.args.betas", "optim.args.momentum"}
    return optimizer | set(_read("protocol", protocol))


def _read(group: str, name: str) -> dict[str, Any]:
    """Returns the options of a file; nothing if there is no such file."""
    path = CONFIGS / group / f"{name}.yaml"
    if not path.is_file():
        return {}
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    options = {}
    for option, value in flatten(content or {}).items():
        if not option.startswith(HIDDEN):
            options[option] = value
    return options


@cache
def _compose(protocol: str, data: str) -> DictConfig:
    words = [f"protocol={protocol}", f"data={data}", f"backbone={PROTOCOLS[protocol]}"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", words)


def _order(option: str) -> tuple[int, str]:
    groups = ("protocol", "data", "embedder", "optim", "transform")
    return groups.index(option.split(".")[0]), "" if option == "optim._target_" else option


def _name(option: str) -> str:
    return code(RENAMED.get(option, option))


def _cell(value: Any) -> str:
    """Returns a value in short; without a value, a dash."""
    if value is None:
        return NONE
    if OmegaConf.is_config(value) or isinstance(value, list):
        return f"[{', '.join(map(_cell, value))}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, str) and value.startswith("torch.optim"):
        return value.rsplit(".", 1)[1]
    return str(value)
