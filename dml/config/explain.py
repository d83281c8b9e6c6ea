"""What is wrong with a command that Hydra refused, in the user's terms: one line per mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import check
from dml.config.command_line import WITH_VALUE, is_multirun
from dml.config.config_groups import CONFIGS, chosen_groups
from dml.config.overlooked import SEARCHPATH, alternatives
from dml.config.schema import Config, EvaluateConfig
from dml.core.errors import ConfigError, nearest

NO_ACCUMULATION = (
    "these losses compare all images of a batch, and the gradients of small batches do not add up "
    "to those of a large one; use precision=bf16, or torchrun and more GPUs, which share a batch"
)
# What composing raises for a wrong word; a list of numbers for a group trips Hydra itself.
REFUSALS = (HydraException, OmegaConfBaseException, ValueError, TypeError)
# Nodes that take options which their file does not list, with a `+` before the name.
OPEN = {"loss", "method", "backbone", "tracking", "data.reader", "optim.args", "optim.groups",
        "optim.schedule", "space.own", "protocol.lookup", "hydra.launcher"}  # fmt: skip


def explain(words: Sequence[str], config_name: str) -> list[str]:
    """Every problem of the command's overrides, empty if none is.

    Hydra stops at the first; here an override that does not compose is noted and left out, choices
    of groups first, since they decide which options exist. It is found by halves: composing takes
    a fifth of a second, and a command may have many words.

    Args:
        words: of the command line, flags among them.
        config_name: the primary file in `configs/`.
    """
    given = [word for word in words if word[:1] == "~" or ("=" in word and word[:1] != "-")]
    problems = [f"{word or repr(word)}: not of the form option=value" for word in _stray(words)]
    paths = [word for word in given if word.startswith(f"{SEARCHPATH}=")]
    base = paths or _config_dir(words)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        command = _Command(config_name, base, is_multirun(words))
        rest = [word for word in given if word not in paths]
        rest.sort(key=lambda text: not command.is_group(text.partition("=")[0]))
        problems += command.add_all(rest)
        if problems:
            problems += command.checked()
    return problems


@dataclass
class _Command:
    """Overrides that compose, one more at a time.

    Attributes:
        config_name: the primary file.
        good: overrides so far.
        multirun: whether an option may have several values.
    """

    config_name: str
    good: list[str]
    multirun: bool

    def __post_init__(self) -> None:
        self.groups = chosen_groups(self.config_name)
        self.base = tuple(self.good)

    def is_group(self, name: str) -> bool:
        """Whether `name` is chosen from files: `loss`, `hydra/launcher`."""
        return name in self.groups or ("/" in name and bool(self.choices(name)))

    def choices(self, group: str) -> list[str]:
        """Of a group, those in folders of the user's own among them."""
        loader = GlobalHydra.instance().config_loader()
        return sorted(loader.get_group_options(group, overrides=list(self.base)))

    def add_all(self, words: list[str]) -> list[str]:
        """Takes in those that compose; returns what is wrong with the others."""
        if len(words) == 1 and (problem := self.add(words[0])):
            return [problem]
        if len(words) <= 1 or self._taken_together(words):
            return []
        middle = len(words) // 2
        return self.add_all(words[:middle]) + self.add_all(words[middle:])

    def _taken_together(self, words: list[str]) -> bool:
        """Takes in all, if they compose and none of them stands for several."""
        try:
            parsed = OverridesParser.create().parse_overrides(words)
            if any(one.is_sweep_override() or not one.key_or_group for one in parsed):
                return False
            compose(self.config_name, overrides=[*self.good, *words])
        except REFUSALS:
            return False
        self.good += words
        return True

    def add(self, word: str) -> str:
        """Takes an override in; returns what is wrong with it otherwise."""
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            override = None
        name = word.partition("=")[0].lstrip("+~")
        if override is None or not name:
            return f"{word}: not of the form option=value; quote special characters"
        if override.is_sweep_override() and not self.multirun:
            brackets = "" if self.is_group(name) else f"; for a list write {name}=[…]"
            value = word.partition("=")[2]
            return f"{name}: {value} are several values; for a grid of runs add -m{brackets}"
        singles = alternatives(override, word)
        for single in singles:
            try:
                compose(self.config_name, overrides=[*self.good, single])
            except REFUSALS as reason:
                return self._say(single, reason)
        self.good += singles[:1]
        return ""

    def checked(self) -> list[str]:
        """What else is wrong, in what composes."""
        schema = EvaluateConfig if self.config_name == "evaluate" else Config
        try:
            check(compose(self.config_name, overrides=self.good), schema)
        except ConfigError as more:
            return more.problems
        return []

    def _say(self, word: str, reason: Exception) -> str:
        """The problem of one override that does not compose."""
        sign = word[0] if word[0] in "+~" else ""
        name, _, value = word.lstrip("+~").partition("=")
        if self.is_group(name):
            return (
                f"{name}: {self._choice_problem(name, value, sign) or _composition(value, reason)}"
            )
        known = compose(self.config_name, overrides=self.good, return_hydra_config=True)
        options = _options(OmegaConf.to_container(known))
        inner = re.search(r"Key '([^']+)' is not in struct", f"{reason} {reason.__cause__}")
        if name in options and inner:  # option={inner: …}
            name, value = f"{name}.{inner[1]}", "…"
        if name not in options:
            if "accumul" in name:
                return f"{name}: no such option, on purpose: {NO_ACCUMULATION}"
            return f"{name}: no such option{self._hint(name, value, options)}"
        if sign == "+":
            return f"{name}: is there already; leave the + out"
        if "Could not override" in str(reason):
            inside = ", ".join(_siblings(f"{name}.", options))
            return f"{name}: is not chosen as a whole; its options are {inside}"
        return f"{name}: {str(reason).splitlines()[0]}"

    def _choice_problem(self, group: str, value: str, sign: str) -> str:
        """Why a choice does not exist; empty if it does."""
        choices = self.choices(group)
        listed = " | ".join(choices)
        if not choices:
            return "there is nothing to choose from yet"
        if sign == "~":
            return f"cannot be left out; one of {listed}"
        if value == "null" and group in chosen_groups(empty=True):
            return f"no choice is the default: leave {group} out"
        if value not in choices:
            return f"no '{value}'{nearest(value, choices) or f'; one of {listed}'}"
        return ""

    def _hint(self, name: str, value: str, options: Sequence[str]) -> str:
        """What may have been meant: a name like it, one beside it, or a new one."""
        above = {name[:place] for place, letter in enumerate(name) if letter == "."}
        siblings = list(_siblings(name, options))
        is_open = bool(above & OPEN)
        others = [one for one in options if one not in above]
        hint = nearest(name, siblings if is_open else [*others, *self.groups])
        if siblings and not hint:
            hint = "; here are " + ", ".join(siblings)
        return f"{hint}; +{name}={value} adds it" if is_open else hint


def _composition(choice: str, reason: Exception) -> str:
    """Why a choice that exists does not compose."""
    text = str(reason)
    if "submitit" in text:
        return f"'{choice}' needs a launcher that is not installed: pip install -e '.[slurm]'"
    return f"'{choice}' does not compose: {' '.join(text.split())[:200]}"


def _stray(words: Sequence[str]) -> list[str]:
    """Words that are neither flags nor overrides."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if "=" not in word and word[:1] not in ("-", "~") and before not in WITH_VALUE
    ]


def _config_dir(words: Sequence[str]) -> list[str]:
    """`--config-dir <folder>` as the search path that it amounts to."""
    joined = "=".join(words).split("=")
    for flag, folder in pairwise(joined):
        if flag in ("--config-dir", "-cd"):
            return [f"{SEARCHPATH}=[file://{Path(folder).absolute()}]"]
    return []


def _options(node: Any, path: str = "") -> list[str]:
    """All dotted names of a config."""
    if not isinstance(node, dict):
        return []
    names = [f"{path}{key}" for key in node]
    for key, child in node.items():
        names += _options(child, f"{path}{key}.")
    return names


def _siblings(name: str, options: Sequence[str]) -> Iterator[str]:
    """The options beside `name` in its node."""
    parent = name.rpartition(".")[0]
    return (option for option in options if parent and option.rpartition(".")[0] == parent)
