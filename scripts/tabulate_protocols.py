"""Tables of docs/concepts/protocols.md: python scripts/tabulate_protocols.py

Writes every setting of the protocols side by side, composed for CUB and the network of the paper,
and what the recipes change on other datasets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from dml.cli import CONFIGS
from dml.core.atomic_io import write_text

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "protocols.md"
PROTOCOLS = {
    "mlrc": "bn_inception",
    "mlrc_ccp": "bn_inception",
    "holdout": "bn_inception",
    "validation": "bn_inception",
    "traditional": "bn_inception",
    "conventional": "bn_inception",
    "pfml": "resnet50",
    "metrix": "resnet50",
}
DATASETS = ("cars", "sop", "inshop")
NONE = "\N{EN DASH}"
HIDDEN = ("protocol.name", "protocol.result_id", "protocol.lookup.", "data.name", "optim.name")
NAMES = {"optim._target_": "optimizer", "optim.schedule._target_": "optim.schedule"}


def settings_table() -> str:
    """Returns a Markdown table with a row for each option that a protocol sets."""
    configs = {name: _compose(name, "cub") for name in PROTOCOLS}
    options = sorted({option for name in PROTOCOLS for option in _options_of(name)}, key=_order)
    rows = [["", *(f"`{name}`" for name in PROTOCOLS)]]
    rows.append(["backbone", *PROTOCOLS.values()])
    for option in options:
        values = [_cell(OmegaConf.select(config, option)) for config in configs.values()]
        if option != "optim.schedule" and any(value != NONE for value in values):
            rows.append([f"`{NAMES.get(option, option)}`", *values])
    return _markdown(rows)


def recipes_table() -> str:
    """Returns a Markdown table of what the recipes of a protocol change on a dataset."""
    rows = [["protocol, dataset", "changes"]]
    for protocol in PROTOCOLS:
        for data in DATASETS:
            path = CONFIGS / "recipe" / f"{protocol}_{data}.yaml"
            if path.is_file():
                changes = _list_changes(_read(path), protocol, data)
                rows.append([f"`{protocol}`, `{data}`", "; ".join(changes)])
    return _markdown(rows)


def _compose(protocol: str, data: str) -> DictConfig:
    words = [f"protocol={protocol}", f"data={data}", f"backbone={PROTOCOLS[protocol]}"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", words)


def _list_changes(recipe: dict[str, Any], protocol: str, data: str) -> Iterator[str]:
    """Yields the options of a recipe; values that refer to others are composed."""
    for option, value in _flatten(recipe):
        if option.startswith(("defaults", *HIDDEN)):
            continue
        if "$" in str(value):
            value = OmegaConf.select(_compose(protocol, data), option)
        if value is not None:
            yield f"`{NAMES.get(option, option)}` {_cell(value)}"


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(path))  # type: ignore[assignment]
    return content


def _options_of(protocol: str) -> Iterator[str]:
    """Yields the options that a protocol's file sets, and its optimizer's class and arguments."""
    for option, _ in _flatten(_read(CONFIGS / "protocol" / f"{protocol}.yaml")):
        if not option.startswith(("defaults", *HIDDEN)):
            yield option
    yield from ("optim._target_", "optim.args.betas", "optim.args.momentum")


def _flatten(node: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _order(option: str) -> tuple[int, str]:
    groups = ("protocol", "data", "embedder", "optim", "transform")
    return groups.index(option.split(".")[0]), "" if option == "optim._target_" else option


def _cell(value: Any) -> str:
    """Returns a value as YAML writes it; without a value, a dash."""
    if value is None:
        return NONE
    if OmegaConf.is_config(value) or isinstance(value, list):
        return "[" + ", ".join(_cell(part) for part in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, str) and value.startswith("torch.optim"):
        return value.rsplit(".", 1)[1]
    return str(value)


def _markdown(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def updated(page: str) -> str:
    """Returns the page with both tables between their markers."""
    for marker, table in (("settings", settings_table()), ("recipes", recipes_table())):
        before, start, rest = page.partition(f"<!-- {marker} -->\n")
        _, end, after = rest.partition(f"<!-- /{marker} -->")
        page = f"{before}{start}{table}\n{end}{after}"
    return page


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: with --check, 1 if the page is out of date; else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    options = parser.parse_args(argv)
    before = PAGE.read_text(encoding="utf-8")
    after = updated(before)
    if options.check and before != after:
        print(f"error: {PAGE} is out of date; run python scripts/tabulate_protocols.py")
        return 1
    if not options.check:
        write_text(PAGE, after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
