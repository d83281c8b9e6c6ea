"""Arguments of the command line before Hydra parses them, and the config groups."""

from __future__ import annotations

import os
import re
from argparse import ArgumentError
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf

from dml.core.errors import ConfigError
from dml.core.installation import CONFIGS

MULTIRUN = ("-m", "--multirun")
HELP = ("-h", "--help")
FLAGS = ("-m", "--multirun", "-h", "--help", "--hydra-help", "--version", "--resolve", "--run",
         "-r", "--shell-completion", "-sc")  # fmt: skip
FLAGS_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name",
                    "-cn", "--config-dir", "-cd", "--experimental-rerun", "--info",
                    "-i")  # fmt: skip
PATHS = ("outputs", "data.root", "data.reader.root", "params", "resume", "run",
         "embeddings")  # fmt: skip
TEXTS = ("name", "note", "data.name", "loss.name", "method.name", "backbone.name", "optim.name",
         "data.background", "tracking.project", "tracking.entity",
         "tracking.experiment", "tracking.uri")  # fmt: skip
QUOTED_BY_HYDRA = ("outputs", "data.root", "data.reader.root", "run", "embeddings",
                   "backbone.weights", *TEXTS)  # fmt: skip
PLAIN = re.compile(r"[\w/.+$%*@:?| \\-]*", re.ASCII)  # what Hydra takes without quotes
SYNTAX = re.compile(r"""['"\[{].*|.*\$\{.*|.*,.*|\w+\(.*\)""", re.DOTALL)  # quotes, lists, sweeps
EMPTY = ("", "''", '""')  # as Hydra reads them
NAME_OF_CLASS = "optim.name='${class_name:${optim._target_}}'"
# By the option that names a class: the node of its arguments.
ARGUMENTS = {
    "optim.schedule._target_": "optim.schedule",
    "optim._target_": "optim.args",
    "data.sampler._target_": "data.sampler",
}


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits command-line arguments into Hydra's flags, with their values, and all others.

    Hydra expects flags first: `-m` between two overrides would end their list.
    """
    flags: list[str] = []
    others: list[str] = []
    previous = ""
    for word in words:
        is_flag = word.partition("=")[0] in FLAGS + FLAGS_WITH_VALUE
        is_value = previous in FLAGS_WITH_VALUE and "=" not in word
        if is_flag or is_value:
            flags.append(word)
        else:
            others.append(word)
        previous = word
    return flags, others


def quote_paths(words: Sequence[str]) -> list[str]:
    """Returns arguments whose paths and names are taken as they are: `~` is the home folder.

    A shell has split the words already; Hydra would ask for its own quotes around umlauts, `=`,
    `#`, `'` and the like. Values in quotes, lists, sweeps and references stay as they are.
    """
    return [_quote_path(word) for word in words]


def _quote_path(word: str) -> str:
    prefix, is_option, value = word.partition("=")
    name = prefix.lstrip("+")
    if not is_option or name not in PATHS + QUOTED_BY_HYDRA:
        return word
    if SYNTAX.fullmatch(value) and not os.path.exists(value):
        return word
    if value.startswith("~") and name not in TEXTS:
        value = os.path.expanduser(value)
    if name in QUOTED_BY_HYDRA and not PLAIN.fullmatch(value):
        escaped = re.sub(r"(\\*)('|$)", _escape, value)
        value = f"'{escaped}'"
    return f"{prefix}={value}"


def _escape(match: re.Match[str]) -> str:
    """Returns an apostrophe, or the end of a value, with the backslashes before it escaped."""
    backslashes, apostrophe = match.groups()
    return 2 * backslashes + ("\\'" if apostrophe else "")


def drop_replaced_arguments(words: Sequence[str]) -> list[str]:
    """Returns arguments by which a typed class takes only the arguments that are typed with it.

    Hydra would merge them with the arguments of the protocol's class: an exponential schedule would
    silently keep the factor of a stepwise one.
    """
    for option, node in ARGUMENTS.items():
        if any(_names_class(word, option, node) for word in words):
            words = _replace_node(words, node)
    return list(words)


def _names_class(word: str, option: str, node: str) -> bool:
    name, _, value = word.lstrip("+").partition("=")
    is_new_node = name == node and f"{node}._target_" == option and "_target_" in value
    return name == option or is_new_node


def _replace_node(words: Sequence[str], node: str) -> list[str]:
    """Returns arguments that empty a node before they set anything in it."""
    replaced = []
    for word in words:
        if word.startswith(f"~{node}."):  # an argument that is dropped in any case
            continue
        is_inside = word.lstrip("+").startswith((f"{node}.", f"{node}={{"))
        replaced.append("++" + word.lstrip("+") if is_inside else word)
    if f"{node}=null" in words:
        return replaced
    empty = [f"{node}=null"]
    if node == "optim.args":
        empty += [f"++{node}={{}}", NAME_OF_CLASS]  # a typed name comes later, and holds
    return empty + replaced


def refuse_wrong_flags(flags: Sequence[str], words: Sequence[str] = ()) -> None:
    """Raises ConfigError for a flag whose value Hydra does not accept.

    Hydra would print its usage, and end the process.

    Args:
        flags: of `split_flags`.
        words: the other arguments, which may choose files of `--config-dir`.
    """
    from dml.config.hydra_internals import parse_flags

    for flag in flags:
        name, has_value, _ = flag.partition("=")
        if has_value and name in FLAGS:
            raise ConfigError([f"{name}: takes no value; options are name=value, without dashes"])
    try:
        # --version would end the process.
        parsed = parse_flags([flag for flag in flags if flag != "--version"])
    except ArgumentError as error:
        problem = str(error).removeprefix("argument ")
        raise ConfigError([f"{problem}; --hydra-help describes the flags"]) from error
    if not parsed.config_dir:
        return
    if not os.path.isdir(parsed.config_dir):
        raise ConfigError([f"--config-dir: there is no folder {parsed.config_dir}"])
    refuse_byte_order_marks(parsed.config_dir, words)


def refuse_byte_order_marks(folder: str, words: Sequence[str]) -> None:
    """Raises ConfigError if a chosen file of `--config-dir` begins with a byte order mark.

    Hydra would take the mark for a part of the first line, and overlook `# @package _global_`.
    """
    for word in words:
        group, _, choice = word.lstrip("+").partition("=")
        path = os.path.join(folder, group, f"{choice}.yaml")
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            if file.read(len(BOM_UTF8)) == BOM_UTF8:
                raise ConfigError(
                    [f"{word}: {path} begins with a byte order mark; save it as UTF-8 without it"]
                )


def is_multirun(words: Sequence[str]) -> bool:
    """Returns whether command-line arguments start a multirun; named experiments always do."""
    return any(word in MULTIRUN or word.startswith("experiment=") for word in words)


def refuse_repeated(words: Sequence[str]) -> None:
    """Raises ConfigError for a group that is chosen twice, of which Hydra takes the last choice."""
    chosen: dict[str, str] = {}
    problems = []
    for word in words:
        group = word.partition("=")[0]
        if not group or not (CONFIGS / group).is_dir():
            continue
        if chosen.setdefault(group, word) != word:
            problems.append(f"{group}: chosen twice, by {chosen[group]} and {word}; write one")
    if problems:
        raise ConfigError(problems)


def refuse_mixed_ranges(words: Sequence[str]) -> None:
    """Raises ConfigError for a typed range that also has choices, which would hide the range.

    Choices of one word and a range of another are merged: choices replace the range of a loss.
    """
    for word in words:
        name, _, value = word.lstrip("+").partition("=")
        keys = set(re.findall(r"[{,]\s*(\w+)\s*:", value))
        others = sorted(keys & {"low", "high", "log", "int", "step"})
        if name.startswith("space.") and "choices" in keys and others:
            raise ConfigError([f"{name}: choices and {others[0]} exclude each other; write one"])


def refuse_recipes(words: Sequence[str]) -> None:
    """Raises ConfigError for a choice of the group `recipe`, of which Hydra takes any name."""
    for word in words:
        if word.lstrip("~+").partition("=")[0] == "recipe":
            raise ConfigError([f"{word}: a recipe belongs to protocol and data; leave it out"])


def refuse_root_without_data(words: Sequence[str]) -> None:
    """Raises ConfigError for `data.root=photos` alone, which would draw glyphs into that folder."""
    typed = dict(word.lstrip("+").partition("=")[::2] for word in words)
    root = typed.get("data.root", "")
    if not root or typed.keys() & {"data", "experiment"}:
        return
    if not os.path.isdir(os.path.join(root, "glyphs")):
        raise ConfigError(
            [
                f"data.root: {root} has no glyphs, which are the default dataset; add data=folder "
                f"for images of your own, data=glyphs to draw them there, or another data=<dataset>"
            ]
        )


def refuse_empty(words: Sequence[str]) -> None:
    """Raises ConfigError for an empty path, which would mean the current folder."""
    problems = []
    for word in words:
        name, is_option, value = word.lstrip("+").partition("=")
        if is_option and name in PATHS and value in EMPTY:
            problems.append(f"{name}: is empty; give a path, or leave {name}= out")
    if problems:
        raise ConfigError(problems)


def list_groups(config_name: str = "train") -> list[str]:
    """Returns the config groups in the defaults list of a primary config file."""
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / f"{config_name}.yaml"))
    groups = []
    for entry in content["defaults"]:
        if isinstance(entry, dict):
            groups += [str(key) for key in entry if " " not in str(key)]  # not "override x"
        elif entry != "_self_":
            groups += list_groups(entry)
    return groups


def list_choices() -> dict[str, list[str]]:
    """Returns the choices of every config group and of `params`, both in alphabetical order."""
    choices = {}
    for group in sorted({"params"} | set(list_groups())):
        choices[group] = sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))
    return choices


def choices_for_help() -> str:
    """Returns the choices of every config group and of `params` for `--help`, a line each."""
    lines = [f"{group}: {', '.join(names)}" for group, names in list_choices().items()]
    return "\n".join(lines)
