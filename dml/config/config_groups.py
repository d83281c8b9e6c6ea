"""The groups of configs that a user chooses from, and what there is to choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def chosen_groups(config_name: str = "train", empty: bool = False) -> list[str]:
    """The groups that a user chooses from: those of the defaults list.

    Args:
        config_name: the primary file.
        empty: only those from which nothing is chosen by default.
    """
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{config_name}.yaml"))
    found = []
    for entry in content["defaults"]:
        if isinstance(entry, dict):
            names = [str(key) for key in entry if " " not in str(key)]  # not "override x"
            found += [name for name in names if not empty or entry[name] is None]
        elif entry != "_self_":
            found += chosen_groups(entry, empty)
    return found


def choices_for_help() -> str:
    """A line per group, for `--help`; folders in `configs/` that nobody chooses from are left out.

    Beside the groups, `params` has tables of published values.
    """
    lines = []
    for group in sorted({*chosen_groups(), "params"}):
        files = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
        if files:
            lines.append(f"{group}: {', '.join(files)}")
    return "\n".join(lines)
