"""The groups of configs that a user chooses from, and their choices."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from dml.core.installation import CONFIGS


def list_groups(config_name: str = "train", optional: bool = False) -> list[str]:
    """Returns the groups that a user chooses from: those of the defaults list.

    Args:
        config_name: the primary file.
        optional: only those without a default choice.
    """
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{config_name}.yaml"))
    groups = []
    for entry in content["defaults"]:
        if isinstance(entry, dict):
            names = [str(key) for key in entry if " " not in str(key)]  # not "override x"
            groups += [name for name in names if not optional or entry[name] is None]
        elif entry != "_self_":
            groups += list_groups(entry, optional)
    return groups


def choices_for_help() -> str:
    """Returns a line per group for `--help`, and one for the tables of `params`.

    Folders of `configs/` that other files refer to, such as `space`, are left out.
    """
    lines = []
    for group in sorted({*list_groups(), "params"}):
        files = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
        if files:
            lines.append(f"{group}: {', '.join(files)}")
    return "\n".join(lines)
