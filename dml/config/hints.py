"""Hints for words that are no option or no choice: the command that the user meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dml.config.config_groups import CONFIGS
from dml.config.slips import (
    CHOICE_OF,
    EXPLAINED,
    GPU_COUNTS,
    GROUP_OF,
    OPTION_OF,
    SEED_LISTS,
    SWITCHES,
)
from dml.core.installation import shell_command

TRUE, FALSE = ("true", "yes", "on", "1", ""), ("false", "no", "off", "0", "none", "null")
OWN_CLASS = {  # group → option that names a class of the user's own
    "loss": "loss._target_",
    "method": "method._target_",
    "backbone": "backbone._target_",
    "data": "data.reader._target_",
}
# Groups of which each choice has other options.
HAVE_OPTIONS = ("loss", "method", "optim", "backbone", "tracking")
MAX_CHOICES = 4  # that a hint lists
SURE = 0.8  # similarity above which a word is a misspelling of a choice


@dataclass(frozen=True)
class Vocabulary:
    """The options and choices of a command.

    Attributes:
        options: dotted names, nodes among them.
        choices: group → its choices.
        numbers: the options whose values are numbers.
    """

    options: Sequence[str]
    choices: dict[str, list[str]]
    numbers: Collection[str] = ()


def suggest_option(name: str, value: str, vocabulary: Vocabulary) -> str:
    """Returns the hint for an option that does not exist, `; write optim.lr=0.1`; empty if none.

    Args:
        name, value: as typed.
        vocabulary: of the command.
    """
    word = name.lower().replace("-", "_")
    if word in EXPLAINED:
        commands = {name: shell_command(name) for name in ("train", "evaluate")}
        return f"; {EXPLAINED[word].format(value=value or '<name>', **commands)}"
    found = (_check_number(one, vocabulary) for one in _find_commands(word, value, vocabulary))
    words = list(dict.fromkeys(found))
    return f"; write {' or '.join(words)}" if words else ""


def _check_number(command: str, vocabulary: Vocabulary) -> str:
    """Returns the command, with `<number>` for a word that cannot be the option's value."""
    name, _, value = command.partition("=")
    wrong = name.lstrip("+") in vocabulary.numbers and re.fullmatch(r"[A-Za-z_]+", value)
    return f"{name}=<number>" if wrong and value not in ("null", "inf", "nan") else command


def is_usual_slip(name: str) -> bool:
    """Returns True for names in the tables of slips, which similar options need not explain."""
    return name in OPTION_OF or name.rpartition(".")[2] in SWITCHES


def _find_commands(word: str, value: str, vocabulary: Vocabulary) -> Iterator[str]:
    """Yields what to write instead of `word=value`; the surest kind of hint only."""
    head, _, rest = word.partition(".")
    if rest and head in GROUP_OF:
        head = GROUP_OF[head]
        word = f"{head}.{rest}"
    leaf = word.rpartition(".")[2]
    if command := _replace_switch(leaf if head in GROUP_OF.values() else word, value.lower()):
        yield command
    elif word in GROUP_OF or word in vocabulary.choices:
        group = GROUP_OF.get(word, word)
        yield suggest_choice(group, value, vocabulary.choices[group]) or f"{group}={value}"
    elif word in vocabulary.options:
        yield f"{word}={value}"
    elif option := OPTION_OF.get(word) or OPTION_OF.get(leaf):
        yield f"{option}={value}"
    elif same := [one for one in vocabulary.options if one.rpartition(".")[2] == leaf]:
        yield from (f"{option}={value}" for option in same[:MAX_CHOICES])
    else:
        yield from filter(None, (find_choices_with(leaf, value, one) for one in HAVE_OPTIONS))


def _replace_switch(word: str, value: str) -> str:
    """Returns the command for words with a meaning of their value; empty for others."""
    numbers = re.findall(r"\d+", value)
    if word in GPU_COUNTS or (word == "gpu" and len(numbers) > 1):
        count = int(numbers[0]) if len(numbers) == 1 else len(numbers)
        train = shell_command("train").replace("dml-", "--no-python dml-").removeprefix("python ")
        return "device=cuda" if count < 2 else f"torchrun --nproc-per-node={count} {train} …"
    if word == "gpu" and numbers:
        return f"device=cuda:{numbers[0]}"
    if word in SEED_LISTS and numbers:
        seeds = numbers if len(numbers) > 1 else [str(n) for n in range(min(int(numbers[0]), 10))]
        return f"-m seed={','.join(seeds)}"
    if word in SWITCHES and value in TRUE + FALSE:
        return SWITCHES[word][value in FALSE]
    return ""


def find_choices_with(leaf: str, value: str, group: str) -> str:
    """Returns a choice of a group that has an option, the option, and other choices; or nothing."""
    found = {
        choice: option
        for choice, options in _options_of_choices(group).items()
        for option in options
        if option.rpartition(".")[2] == leaf
    }
    if not found:
        return ""
    first, *more = list(found)[:MAX_CHOICES]
    also = f" (also {', '.join(more)})" if more else ""
    return f"{group}={first} {found[first]}={value}{also}"


@cache
def _options_of_choices(group: str) -> dict[str, dict[str, Any]]:
    """Returns choice → dotted option → value, of the group's files."""
    return {
        file.stem: dict(_list_values(OmegaConf.to_container(OmegaConf.load(file)), group))
        for file in sorted((CONFIGS / group).glob("*.yaml"))
    }


def _list_values(content: Any, group: str) -> Iterator[tuple[str, Any]]:
    """Yields dotted option and value of a file's own node."""
    node = content.get(group, {}) if group in content else content

    def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
        for key, value in node.items():
            if isinstance(value, dict):
                yield from walk(value, f"{path}.{key}")
            else:
                yield f"{path}.{key}", value

    return walk(node, group)


def suggest_choice(group: str, value: str, choices: Sequence[str]) -> str:
    """Returns the command for what a choice that does not exist probably means; empty if unknown.

    It may be another spelling, the class of a choice, a path, a class of the user's own, or a class
    or network of a library. Misspelled choices are left to the caller.
    """
    plain = _simplify(value)
    by_name = {_simplify(choice): choice for choice in choices}
    classes = {
        _simplify(str(options.get(f"{group}._target_", "")).rpartition(".")[2]): choice
        for choice, options in reversed(_options_of_choices(group).items())
        if choice in choices
    }
    for meant in (by_name, CHOICE_OF.get(group, {}), classes):
        if plain and plain in meant:
            return f"{group}={meant[plain]}"
    if group == "data" and ("/" in value or Path(value).is_dir()):
        return f"data=folder data.root={value}"
    if group == "backbone" and (found := _find_timm_model(value, choices)):
        return f"backbone=timm backbone.model={found}"
    if group in OWN_CLASS and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", value):
        return f"{group}=custom {OWN_CLASS[group]}={value}"
    if get_close_matches(value, choices, cutoff=SURE):  # before a library is loaded
        return ""
    if group == "loss" and (found := _find_library_loss(plain)):
        return f"loss=custom loss._target_=pytorch_metric_learning.losses.{found}"
    return ""


def suggest_custom(option: str, node: dict[str, Any]) -> str:
    """Returns the problem of a node whose class is not that of its file; empty if it is.

    Args:
        option: `loss`, `method` or `backbone`.
        node: with `_target_`, `name` and the options of the file.
    """
    file = _options_of_choices(option).get(str(node.get("name")), {}) if option in OWN_CLASS else {}
    target, usual = node.get("_target_"), file.get(f"{option}._target_")
    if usual in (None, target):
        return ""
    return (
        f"{option}._target_: {target} does not take the options of {option}={node['name']}; write "
        f"{option}=custom {option}._target_={target}"
    )


def _simplify(name: str) -> str:
    """Returns a name without case, punctuation and the word loss at its end."""
    return re.sub(r"[\W_]", "", name.lower()).removesuffix("loss")


def _find_library_loss(plain: str) -> str:
    """Returns the class of pytorch-metric-learning with a simplified name; empty if none."""
    from pytorch_metric_learning import losses  # late: it loads torch

    found = (name for name in dir(losses) if name.endswith("Loss") and _simplify(name) == plain)
    return next(found, "")


def _find_timm_model(value: str, choices: Sequence[str]) -> str:
    """Returns timm's name for a network; empty if it is none, or closer to one of the choices."""
    import timm  # late: it loads torch

    name = value.lower().removeprefix("timm/").replace("-", "_")
    if timm.is_model(name):
        return name
    close = [] if "." in name or get_close_matches(name, choices) else timm.list_models()
    return next(iter(get_close_matches(name, close, n=1, cutoff=SURE)), "")
