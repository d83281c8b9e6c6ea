"""Explains commands that Hydra rejected: one line per mistake, with the nearest valid name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, pairwise
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import check
from dml.config.command_line import (
    FLAGS,
    FLAGS_WITH_VALUE,
    drop_replaced_arguments,
    is_multirun,
    list_groups,
    quote_paths,
    refuse_empty,
    split_flags,
)
from dml.config.hydra_internals import apply_override
from dml.config.identity import flatten
from dml.config.schema import Config, EvaluateConfig
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.installation import CONFIGS
from dml.core.option_values import EMBEDDING_FILES

ALIASES = {  # last part of a name in other programs → option or group
    **dict.fromkeys(("model", "arch"), "backbone"),
    **dict.fromkeys(("batch", "bs"), "data.batch_size"),
    **dict.fromkeys(("dim", "embedding_size"), "embedder.size"),
    "criterion": "loss",
    "dataset": "data",
    "gpu": "device",
    "learning_rate": "optim.lr",
    "num_workers": "data.workers",
    "optimizer": "optim",
}
# Nodes that accept options that their files do not list (`+name=value`).
OPEN_NODES = ("loss.", "method.", "backbone.", "tracking.", "data.reader.", "optim.args.",
              "optim.groups.", "optim.schedule_args.", "transform.args.", "data.sampler.",
              "evaluation.metrics.", "space.", "hydra.launcher.")  # fmt: skip
TIMM_MODEL = "backbone.model"  # which the stand-ins of experiments with timm do not have
NAMES_OF_FILES = ("params", "resume")  # options of the command alone, not of its config
INTERNAL = (".name", ".result_id", "._target_")
NOT_OURS = ("hydra.", "space.")
SURE = 0.75  # similarity of dotted names, which often begin alike
LAUNCHERS = {"slurm": "submitit", "joblib": "joblib"}  # choice → package hydra-<this>-launcher


def explain(words: Sequence[str], config_name: str) -> list[str]:
    """Returns a line for every problem of a command; empty if there is none.

    Hydra stops at the first problem; here an invalid argument is reported and skipped.

    Args:
        words: arguments of the command line, flags included.
        config_name: the primary config file in `configs/`.
    """
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return list(_find_problems(words, config_name))


def compose_config(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Returns the config that Hydra composes from a primary config file and overrides.

    Raises:
        ConfigError: a wrong option, one line per problem.
    """
    refuse_empty(overrides)
    overrides = quote_paths(overrides)
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            flags, others = split_flags(overrides)
            others = search_paths(flags) + drop_replaced_arguments(others)
            return compose(config_name, overrides=others)
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise ConfigError(explain(overrides, config_name) or [first_line(error)]) from error


def search_paths(flags: Sequence[str]) -> list[str]:
    """Returns `--config-dir` as an override."""
    paths = []
    for flag, folder in pairwise("=".join(flags).split("=")):
        if flag in ("--config-dir", "-cd"):
            paths.append(f"hydra.searchpath=[file://{Path(folder).absolute()}]")
    return paths


def _find_problems(words: Sequence[str], config_name: str) -> Iterator[str]:
    flags, others = split_flags(words)
    if "=" in others:
        yield "=: write options without spaces, such as loss=ms"
        return
    others = drop_replaced_arguments(others)
    sorted_words = _SortedWords(words, flags, others, config_name)
    yield from sorted_words.problems
    try:
        cfg = compose(config_name, overrides=sorted_words.chosen, return_hydra_config=True)
    except Exception as error:  # of many classes
        shown = " ".join(sorted_words.chosen) or config_name
        yield f"{shown}: {' '.join(str(error).split())[:300]}"
        return
    names, stray = list_options(cfg), sorted_words.stray
    after_flags = {word for flag, word in pairwise(stray) if flag.startswith("-")}  # of --loss ms
    for word in stray:
        if word not in after_flags:
            yield _explain_stray(word, sorted_words.choices, names)
    for override in sorted_words.options:
        yield from _apply(override, cfg, names)
    _fill_from_grids(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    schema = EvaluateConfig if config_name == "evaluate" else Config
    try:
        check(cfg, schema)
    except ConfigError as error:
        yield from error.problems


def _fill_from_grids(cfg: DictConfig) -> None:
    """Gives options that are missing the first value that the grids of an experiment have."""
    grids = OmegaConf.select(cfg, "hydra.sweeper.grids") or []
    for word in " ".join(grids).split():
        name, _, values = word.partition("=")
        parent, _, key = name.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else None
        if isinstance(node, DictConfig) and OmegaConf.is_missing(node, key):
            node[key] = values.partition(",")[0]


class _SortedWords:
    """The arguments of a command by what they are.

    Attributes:
        choices: choices of each group.
        chosen: arguments that choose an entry of a group, and search paths.
        options: parsed arguments that set options.
        stray: arguments that are neither.
        problems: a line for each argument that chooses what does not exist.
    """

    def __init__(
        self, words: Sequence[str], flags: Sequence[str], others: Sequence[str], config_name: str
    ) -> None:
        self.is_multirun = is_multirun(words)
        self.paths = [word for word in others if word.startswith("hydra.searchpath=")]
        self.paths += search_paths(flags)
        self.loader = GlobalHydra.instance().config_loader()
        self.parser = OverridesParser.create(self.loader)
        self.choices = {group: self._list_choices(group) for group in list_groups(config_name)}
        self.chosen = list(self.paths)
        self.options: list[Override] = []
        self.stray: list[str] = []
        self.problems: list[str] = []
        for word in others:
            if word not in self.paths and not word.startswith("params="):
                self._add(word)

    def _list_choices(self, group: str) -> list[str]:
        return self.loader.get_group_options(group, overrides=self.paths)

    def _add(self, word: str) -> None:
        try:
            (override,) = self.parser.parse_overrides([word])
        except HydraException:
            override = None
        if override is None or not override.key_or_group:
            self.stray.append(word)
            return
        name, singles = override.key_or_group, self._split_sweep(word, override)
        if "/" in name:
            self.choices[name] = self._list_choices(name)
        if not self.choices.get(name):
            self.options += self.parser.parse_overrides(singles[:1])
            return
        problems = list(_find_choice_problems(singles, self.choices[name]))
        if problems:
            self.problems += problems
        else:
            self.chosen += singles[:1]

    def _split_sweep(self, word: str, override: Override) -> list[str]:
        """Returns an argument for each value of a sweep; only a multirun takes several."""
        if not override.is_sweep_override():
            return [word]
        key, _, value = word.partition("=")
        if not self.is_multirun:
            line = f"{value} are several values; add -m for a grid, or [] for a list"
            self.problems.append(f"{override.key_or_group}: {line}")
        if not override.is_discrete_sweep():
            return []
        return [f"{key}={single}" for single in override.sweep_string_iterator()]


def _apply(override: Override, cfg: DictConfig, names: list[str]) -> Iterator[str]:
    """Sets an option of a config; yields a line if that is impossible."""
    try:
        apply_override(override, cfg)
    except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
        name, reason = override.key_or_group, error.__cause__ or error
        if name in names:  # of option={inner: …}
            name = getattr(reason, "full_key", None) or name
        if name in names:
            yield f"{name}: {first_line(reason)}"
        elif name == TIMM_MODEL:
            network = OmegaConf.select(cfg, "backbone.name")
            yield (
                f"{name}: is an option of backbone=timm, and the network here is {network}; add "
                f"backbone=timm, or leave {name} out"
            )
        else:
            yield _explain_unknown(name, names)


def _find_choice_problems(words: Sequence[str], choices: Sequence[str]) -> Iterator[str]:
    """Yields the problems of arguments that choose one or several entries of a group."""
    for word in words:
        group, equals, choice = word.lstrip("+").partition("=")
        launcher = LAUNCHERS.get(choice)
        if launcher and find_spec(f"hydra_plugins.hydra_{launcher}_launcher") is None:
            yield f"{group}: '{choice}' needs: pip install hydra-{launcher}-launcher"
        elif equals and choice not in choices:  # not ~group
            hint = _advise_on_choice(group, choice, choices)
            yield f"{group}: '{choice}' does not exist{hint}"


def _advise_on_choice(group: str, choice: str, choices: Sequence[str]) -> str:
    """Returns what to write instead of an entry that a group does not have."""
    if group == "data" and os.path.exists(choice):
        return f"; for images of your own write data=folder data.root={choice}"
    if choice == "optuna":
        return "; search=bayes is the search with Optuna"
    if group == "backbone" and "/" in choice:
        return f"; of the Hugging Face hub: backbone=timm backbone.model=hf-hub:{choice}"
    hint = nearest(choice.lower(), choices) or f"; one of {' | '.join(choices)}"
    if group == "backbone":
        hint += f"; as a network of timm: backbone=timm backbone.model={choice}"
    return hint


def _explain_stray(word: str, groups: Mapping[str, Sequence[str]], names: list[str]) -> str:
    """Returns the message for an argument that is neither a flag nor of the form option=value."""
    if word.startswith("-"):
        known = [*names, *NAMES_OF_FILES, *FLAGS, *FLAGS_WITH_VALUE]
        hint = _suggest(word.partition("=")[0], known)
        return f"{word}: no such flag{hint}; options are given as name=value"
    return f"{word or repr(word)}: not of the form option=value{_advise(word, groups, names)}"


def _advise(word: str, groups: Mapping[str, Sequence[str]], names: list[str]) -> str:
    """Returns what to write instead of an argument that is not of the form option=value."""
    if "=" in word and word.endswith(","):
        return "; write the values without spaces, such as seed=0,1"
    if "=" in word:
        return "; quote special characters"
    if word in groups or word in names or word in NAMES_OF_FILES:
        return f"; write {word}=<value>"
    choices = [f"{group}={word}" for group, words in groups.items() if word in words]
    if choices:
        return f"; write {' or '.join(choices)}"
    return _advise_on_path(word, names) or _suggest(word, names)


def _advise_on_path(word: str, names: Sequence[str]) -> str:
    """Returns the option of which a file or folder may be the value; empty if there is none."""
    if word.endswith(EMBEDDING_FILES) and "embeddings" in names:
        return f"; write embeddings={word}"
    if "/" in word and "run" in names:
        return f"; write run={word}"
    if os.path.exists(os.path.join(word, "config.yaml")):
        return f"; write resume={word}"
    if not os.path.exists(word):
        return ""
    dataset = "features" if word.endswith(".npz") else "folder"
    return f"; write data={dataset} data.root={word}"


def _explain_unknown(name: str, names: list[str]) -> str:
    """Returns the message for an unknown option."""
    node = name.rpartition(".")[0]
    siblings = [n for n in names if node and n.rpartition(".")[0] == node]
    similar, addition = names, ""
    if name.startswith(OPEN_NODES):
        similar, addition = siblings, f"; +{name}=<value> adds it"
    hint = _suggest(name, similar)
    valid = [n for n in siblings if not n.endswith(INTERNAL)]
    if valid and not hint:
        hint = f"; valid are {', '.join(valid)}"
    return f"{name}: no such option{hint}{addition}"


def _suggest(name: str, names: list[str]) -> str:
    """Returns `; did you mean 'optim.lr'?` for similar options, or an empty string."""
    last = name.rpartition(".")[2].strip("-").replace("-", "_").lower()
    ours = [n for n in names if not n.startswith(NOT_OURS) and not n.endswith(INTERNAL)]
    if name.lower() in ours:
        return f"; did you mean '{name.lower()}'?"
    same = [n for n in ours if n.rpartition(".")[2] == last]
    if last in ALIASES:
        same = [ALIASES[last]]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    return nearest(name, ours, SURE)


def list_options(cfg: DictConfig) -> list[str]:
    """Returns the dotted names of all options and nodes of a config."""
    names: dict[str, None] = {}  # in order, each name once
    for option in flatten(OmegaConf.to_container(cfg)):
        nodes = accumulate(option.split("."), "{}.{}".format)
        names.update(dict.fromkeys(nodes))
    return list(names)
