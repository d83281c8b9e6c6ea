"""Explains commands that Hydra refused: one line per mistake, in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
from dml.config.command_line import SEARCHPATH, expand_sweep, is_multirun
from dml.config.config_groups import CONFIGS, list_groups
from dml.config.flatten import flatten
from dml.config.hints import Vocabulary, suggest_choice, suggest_option
from dml.config.schema import Config, EvaluateConfig
from dml.config.stray_words import explain_stray_words
from dml.config.unknown_options import explain_unknown, list_siblings
from dml.core.errors import ConfigError, nearest

# Errors that composing raises for a wrong word; a list of numbers for a group breaks Hydra itself.
REFUSALS = (HydraException, OmegaConfBaseException, ValueError, TypeError)
LAUNCHER_PACKAGES = {  # choices of hydra/launcher that exist once the package is installed
    "joblib": "hydra-joblib-launcher",
    "slurm": "hydra-submitit-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
}


def explain(words: Sequence[str], config_name: str) -> list[str]:
    """Returns a line for every problem of a command's overrides; empty if there is none.

    Hydra stops at the first problem; here an override that does not compose is noted and left out.
    Choices of groups come first, since they decide which options exist.

    Args:
        words: of the command line, flags among them.
        config_name: the primary file in `configs/`.
    """
    overrides = [word for word in words if word[:1] == "~" or ("=" in word and word[:1] != "-")]
    overrides = [word for word in overrides if word != "="]  # of `lr = 0.1`
    problems: list[str] = []
    paths = [word for word in overrides if word.startswith(f"{SEARCHPATH}=")]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        command = _Command(config_name, paths or _find_config_dir(words), is_multirun(words))
        if any("=" not in word or word == "=" for word in words):
            problems += explain_stray_words(words, command.choices, command.suggest)
        rest = [word for word in overrides if word not in paths]
        rest.sort(key=lambda text: not command.is_group(text.partition("=")[0]))
        problems += command.add_all(rest)
        if problems:
            problems += command.check()
    return problems


@dataclass
class _Command:
    """Overrides that compose; more are added and those that do not compose are explained.

    Attributes:
        config_name: the primary file.
        accepted: overrides so far.
        multirun: whether an option may have several values.
    """

    config_name: str
    accepted: list[str]
    multirun: bool

    def __post_init__(self) -> None:
        self.groups = list_groups(self.config_name)
        self.search_paths = tuple(self.accepted)
        self.choices = {group: self.list_choices(group) for group in self.groups}

    def is_group(self, name: str) -> bool:
        """Returns True if `name` is chosen from files: `loss`, `hydra/launcher`."""
        return name in self.groups or ("/" in name and bool(self.list_choices(name)))

    def list_choices(self, group: str) -> list[str]:
        """Returns the choices of a group, with those in the user's own folders."""
        loader = GlobalHydra.instance().config_loader()
        return sorted(loader.get_group_options(group, overrides=list(self.search_paths)))

    def compose(self) -> Any:
        """Returns the config of the accepted overrides as plain values, Hydra's own among them."""
        accepted = compose(self.config_name, overrides=self.accepted, return_hydra_config=True)
        return OmegaConf.to_container(accepted)

    def list_options(self) -> list[str]:
        """Returns the dotted names of all options, those of Hydra among them."""
        return list_options(self.compose())

    def suggest(self, name: str, value: str) -> str:
        """Returns the hint for an option that is typed in another form; see `dml.config.hints`."""
        config = self.compose()
        ours = [one for one in list_options(config) if not one.startswith(("hydra.", "space."))]
        if name in ours and name not in self.groups:
            return f"; write {name}={value}"
        flat = flatten(config)
        numbers = {one for one in ours if type(flat.get(one)) in (int, float)}
        return suggest_option(name, value, Vocabulary(ours, self.choices, numbers))

    def add_all(self, words: list[str]) -> list[str]:
        """Adds the words that compose and returns the problems of the others.

        Bisects, since composing takes a fifth of a second and a command may have many words.
        """
        if len(words) == 1 and (problem := self.add(words[0])):
            return [problem]
        if len(words) <= 1 or self._add_together(words):
            return []
        middle = len(words) // 2
        return self.add_all(words[:middle]) + self.add_all(words[middle:])

    def _add_together(self, words: list[str]) -> bool:
        """Adds all words if they compose and none of them is a sweep; returns whether it did."""
        try:
            parsed = OverridesParser.create().parse_overrides(words)
            if any(one.is_sweep_override() or not one.key_or_group for one in parsed):
                return False
            compose(self.config_name, overrides=[*self.accepted, *words])
        except REFUSALS:
            return False
        self.accepted += words
        return True

    def add(self, word: str) -> str:
        """Adds an override; returns its problem if it does not compose, else an empty string."""
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            override = None
        name = word.partition("=")[0].lstrip("+~")
        if override is None or not name:
            return f"{word}: not of the form option=value; quote special characters"
        value = word.partition("=")[2]
        if override.is_sweep_override() and not self.is_group(name):
            options = self.list_options()
            if name not in options:
                return self._explain_unknown(name, value, options)
        if override.is_sweep_override() and not self.multirun:
            brackets = "" if self.is_group(name) else f"; for a list write {name}=[…]"
            return f"{name}: {value} are several values; for a grid of runs add -m{brackets}"
        singles = expand_sweep(override, word)
        for single in singles:
            try:
                compose(self.config_name, overrides=[*self.accepted, single])
            except REFUSALS as reason:
                return self._explain(single, reason)
        self.accepted += singles[:1]
        return ""

    def check(self) -> list[str]:
        """Returns the problems of the config that the accepted overrides compose."""
        schema = EvaluateConfig if self.config_name == "evaluate" else Config
        try:
            check(compose(self.config_name, overrides=self.accepted), schema)
        except ConfigError as error:
            return error.problems
        return []

    def _explain(self, word: str, reason: Exception) -> str:
        """Returns the problem of one override that does not compose."""
        sign = word[0] if word[0] in "+~" else ""
        name, _, value = word.lstrip("+~").partition("=")
        if self.is_group(name):
            problem = self._explain_choice(name, value, sign)
            return f"{name}: {problem or _describe_composition(value, reason)}"
        options = self.list_options()
        inner = re.search(r"Key '([^']+)' is not in struct", f"{reason} {reason.__cause__}")
        if name in options and inner:  # option={inner: …}
            name, value = f"{name}.{inner[1]}", "…"
        if name not in options:
            return self._explain_unknown(name, value, options)
        if sign == "+":
            return f"{name}: exists already; leave out the +"
        if "Could not override" in str(reason):
            inside = ", ".join(list_siblings(f"{name}.", options))
            return f"{name}: cannot be chosen as a whole; its options are {inside}"
        return f"{name}: {str(reason).splitlines()[0]}"

    def _explain_choice(self, group: str, value: str, sign: str) -> str:
        """Returns why a choice is not valid; empty if it is."""
        choices = self.list_choices(group)
        listed = " | ".join(choices)
        if not choices:
            return "has no choices yet"
        if sign == "~":
            return f"cannot be left out; one of {listed}"
        if value == "null" and group in list_groups(optional=True):
            return f"has no choice by default: leave {group} out; ~{group} removes an experiment's"
        if value not in choices:
            if group == "hydra/launcher" and value in LAUNCHER_PACKAGES:
                return _name_package(value)
            if command := suggest_choice(group, value, choices):
                return f"'{value}' does not exist; write {command}"
            return f"'{value}' does not exist{nearest(value, choices) or f'; one of {listed}'}"
        return ""

    def _explain_unknown(self, name: str, value: str, options: Sequence[str]) -> str:
        """Returns the problem of a name that is no option."""
        node = self.compose().get(name.partition(".")[0])
        return explain_unknown(name, value, options, self.groups, node, self.suggest)


def suggest_for_flag(name: str, value: str, config_name: str) -> str:
    """Returns the hint for an option that was typed as a flag, `--lr 0.1`; empty if none."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return _Command(config_name, [], False).suggest(name, value)


def _describe_composition(choice: str, reason: Exception) -> str:
    """Returns why a choice that exists does not compose."""
    text = str(reason)
    if "submitit" in text:
        return _name_package(choice)
    return f"'{choice}' does not compose: {' '.join(text.split())[:200]}"


def _name_package(launcher: str) -> str:
    """Returns what to install for a launcher."""
    return f"'{launcher}' is not installed; run: pip install {LAUNCHER_PACKAGES[launcher]}"


def _find_config_dir(words: Sequence[str]) -> list[str]:
    """Returns `--config-dir <folder>` as the equivalent override of the search path."""
    parts = "=".join(words).split("=")
    for flag, folder in pairwise(parts):
        if flag in ("--config-dir", "-cd"):
            return [f"{SEARCHPATH}=[file://{Path(folder).absolute()}]"]
    return []


def list_options(node: Any, path: str = "") -> list[str]:
    """Returns all dotted names of a config, nodes among them."""
    if not isinstance(node, dict):
        return []
    names = [f"{path}{key}" for key in node]
    for key, child in node.items():
        names += list_options(child, f"{path}{key}.")
    return names
