"""Explains commands that Hydra rejected: one line per mistake, with the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import check
from dml.config.command_line import FLAGS, is_multirun, list_groups, refuse_empty, split_flags
from dml.config.identity import flatten
from dml.config.schema import Config, EvaluateConfig
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.installation import CONFIGS

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
OPEN_NODES = ("loss", "method", "backbone", "tracking", "data.reader", "optim.args", "optim.groups",
              "optim.schedule_args", "space", "hydra.launcher")  # fmt: skip
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
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            flags, others = split_flags(overrides)
            return compose(config_name, overrides=[*search_paths(flags), *others])
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise ConfigError(explain(overrides, config_name) or [first_line(error)]) from error


def search_paths(flags: Sequence[str]) -> list[str]:
    """Returns `--config-dir` as an override."""
    pairs = pairwise("=".join(flags).split("="))
    folders = (folder for flag, folder in pairs if flag in ("--config-dir", "-cd"))
    return [f"hydra.searchpath=[file://{Path(folder).absolute()}]" for folder in folders]


def _find_problems(words: Sequence[str], config_name: str) -> Iterator[str]:
    flags, others = split_flags(words)
    if "=" in others:
        yield "=: write options without spaces, such as loss=ms"
        return
    paths = [word for word in others if word.startswith("hydra.searchpath=")]
    paths += search_paths(flags)
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(loader)
    main = list_groups(config_name)
    choices = {group: loader.get_group_options(group, overrides=paths) for group in main}
    chosen, options, stray = [*paths], [], []
    for word in others:
        if word in paths or word.startswith("params="):
            continue
        try:
            (override,) = parser.parse_overrides([word])
        except HydraException:
            override = None
        if override is None or not override.key_or_group:
            stray.append(word)
            continue
        key, _, value = word.partition("=")
        name, singles = override.key_or_group, [word]
        if override.is_sweep_override():
            if not is_multirun(words):
                yield f"{name}: {value} are several values; add -m for a grid, or [] for a list"
            values = override.sweep_string_iterator() if override.is_discrete_sweep() else ()
            singles = [f"{key}={single}" for single in values]
        if "/" in name:
            choices[name] = loader.get_group_options(name, overrides=paths)
        if not choices.get(name):
            options += parser.parse_overrides(singles[:1])
        elif problems := list(_find_choice_problems(singles, choices[name])):
            yield from problems
        else:
            chosen += singles[:1]
    try:
        cfg = compose(config_name, overrides=chosen, return_hydra_config=True)
    except Exception as error:  # of many classes
        yield f"{' '.join(chosen) or config_name}: {' '.join(str(error).split())[:300]}"
        return
    names = list_options(cfg)
    typed = {value for flag, value in pairwise(stray) if flag.startswith("-")}  # of --loss ms
    yield from (_explain_stray(word, choices, names) for word in stray if word not in typed)
    for override in options:
        try:
            ConfigLoaderImpl._apply_overrides_to_config([override], cfg)
        except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
            name, reason = override.key_or_group, error.__cause__ or error
            if name in names:  # of option={inner: …}
                name = getattr(reason, "full_key", None) or name
            known = name in names
            yield f"{name}: {first_line(reason)}" if known else _explain_unknown(name, names)
    with open_dict(cfg):
        del cfg["hydra"]
    try:
        check(cfg, EvaluateConfig if config_name == "evaluate" else Config)
    except ConfigError as error:
        yield from error.problems


def _find_choice_problems(words: Sequence[str], choices: Sequence[str]) -> Iterator[str]:
    """Yields the problems of arguments that choose one or several entries of a group."""
    for word in words:
        group, equals, choice = word.lstrip("+").partition("=")
        launcher = LAUNCHERS.get(choice)
        if launcher and find_spec(f"hydra_plugins.hydra_{launcher}_launcher") is None:
            yield f"{group}: '{choice}' needs: pip install hydra-{launcher}-launcher"
        elif equals and choice not in choices:  # not ~group
            hint = nearest(choice.lower(), choices) or f"; one of {' | '.join(choices)}"
            if choice == "optuna":
                hint = "; search=bayes is the search with Optuna"
            elif group == "backbone" and "/" in choice:
                hint = f"; of the Hugging Face hub: backbone=timm backbone.model=hf-hub:{choice}"
            yield f"{group}: '{choice}' does not exist{hint}"


def _explain_stray(word: str, groups: Mapping[str, Sequence[str]], names: Sequence[str]) -> str:
    """Returns the message for an argument that is neither a flag nor of the form option=value."""
    if word.startswith("-"):
        hint = _suggest(word.partition("=")[0], [*names, *FLAGS])
        return f"{word}: no such flag{hint}; options are given as name=value"
    owners = [f"{group}={word}" for group, choices in groups.items() if word in choices]
    hint = f"; write {' or '.join(owners)}" if owners else _suggest(word, names)
    hint = f"; write {word}=<value>" if word in (*groups, *names) else hint
    hint = f"; write run={word}" if "/" in word and "run" in names else hint
    hint = "; quote special characters" if "=" in word else hint
    return f"{word or repr(word)}: not of the form option=value{hint}"


def _explain_unknown(name: str, names: Sequence[str]) -> str:
    """Returns the message for an unknown option."""
    node = name.rpartition(".")[0]
    siblings = [n for n in names if node and n.rpartition(".")[0] == node]
    is_open = name.startswith(tuple(f"{open_node}." for open_node in OPEN_NODES))
    hint = _suggest(name, siblings if is_open else names)
    if not hint and (valid := [n for n in siblings if not n.endswith(INTERNAL)]):
        hint = f"; valid are {', '.join(valid)}"
    return f"{name}: no such option{hint}" + (f"; +{name}=<value> adds it" if is_open else "")


def _suggest(name: str, names: Sequence[str]) -> str:
    """Returns `; did you mean 'optim.lr'?` for similar options, or an empty string."""
    last = name.rpartition(".")[2].strip("-").replace("-", "_").lower()
    ours = [n for n in names if not n.startswith(NOT_OURS) and not n.endswith(INTERNAL)]
    same = [ALIASES[last]] if last in ALIASES else [n for n in ours if n.rpartition(".")[2] == last]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    return nearest(name, ours, SURE)


def list_options(cfg: DictConfig) -> list[str]:
    """Returns the dotted names of all options and nodes of a config."""
    parts = [name.split(".") for name in flatten(OmegaConf.to_container(cfg))]
    return [*dict.fromkeys(".".join(p[:n]) for p in parts for n in range(1, len(p) + 1))]
