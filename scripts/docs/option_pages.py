"""Reference of all options, and of the groups of configs with their choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dml.config import schema
from dml.config.command_line import list_groups
from dml.core.installation import CONFIGS
from scripts.docs.commented_yaml import WrittenOption, read_header, read_options
from scripts.docs.component_pages import render, shorten_reference
from scripts.docs.descriptions import load_texts
from scripts.docs.markdown import code, escape, first_sentence, table
from scripts.docs.option_types import describe_option, list_fields

# Nodes in the order of the page: heading, files with their defaults and comments (the first one
# that has an option counts), typed config. A `*` stands for all files of a group.
_SECTIONS: tuple[tuple[str, str, tuple[str, ...], type[schema.Node] | None], ...] = (
    ("", "The run", ("train",), schema.Config),
    ("data", "Data and batches", ("train", "data/cub", "data/*"), schema.DataConfig),
    ("transform", "Augmentation and test images", ("train",), schema.TransformConfig),
    ("embedder", "Network head", ("train",), None),
    ("optim", "Optimizer", ("train", "optim/*"), schema.OptimConfig),
    (
        "protocol",
        "Protocol",
        ("train", "protocol/traditional", "protocol/*"),
        schema.ProtocolConfig,
    ),
    ("protocol.stopping", "", ("protocol/traditional", "protocol/*"), schema.StoppingConfig),
    ("evaluation", "Evaluation", ("train",), schema.EvaluationConfig),
    ("search", "Search", ("search/bayes",), schema.SearchConfig),
    ("experiment", "Presentation in reports", ("train",), schema.ExperimentConfig),
)
_CHOICE = re.compile(r"\$\{by:(?P<name>[\w.]+),\{(?P<cases>[^{}]+)\},")
_NOT_PAGES = {"experiment", "loss", "method"}  # groups with pages of their own


def make_option_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    head = ("option", "default", "type and range", "meaning")
    sections = []
    for node, title, files, model in _SECTIONS:
        options = table(head, _list_rows(node, files, model))
        sections.append({"title": title, "options": options})
    options_page = render(
        "options.md",
        sections=sections,
        backbones=_tabulate_group_options("backbone"),
        trackers=_tabulate_group_options("tracking"),
        evaluate=table(head, _list_evaluate_rows()),
    )
    groups, defaults = [], _defaults()
    for group in sorted({*list_groups(), "params"} - _NOT_PAGES):
        groups.append((group, group in defaults, _tabulate_choices(group)))
    groups_page = render("groups.md", groups=groups, defaults=defaults)
    return {"reference/options.md": options_page, "reference/groups.md": groups_page}


def _list_evaluate_rows() -> Iterator[tuple[str, ...]]:
    """Yields the rows of the options of `dml evaluate`."""
    annotations = list_fields(schema.EvaluateConfig)
    for option in read_options(CONFIGS / "evaluate.yaml"):
        name = option.name
        if "." in name or name in ("defaults", "embedder", "hydra"):
            continue
        type_ = escape(describe_option(annotations[name]))
        yield code(name), code(option.value), type_, escape(option.comment)


def _list_rows(
    node: str, files: tuple[str, ...], model: type[schema.Node] | None
) -> Iterator[tuple[str, ...]]:
    """Yields the rows of a node: the options of the typed config, or else those of the files."""
    prefix = f"{node}." if node else ""
    written = _merge(files, node)
    if model is None:
        for name, (value, comment) in written.items():
            yield code(prefix + name), value, "", _explain(prefix + name, comment)
        return
    for name, annotation in list_fields(model).items():
        type_ = describe_option(annotation)
        is_node = type_ in ("", "null")
        is_group = type_ == "options" and name not in written
        if is_node or is_group:
            continue  # with a section, or with choices
        value, comment = written.get(name, ("", ""))
        yield code(prefix + name), value, escape(type_), _explain(prefix + name, comment)


def _merge(files: tuple[str, ...], node: str) -> dict[str, tuple[str, str]]:
    """Returns default and comment of each option of a node from the first file that has it.

    The default of an option that `train.yaml` lacks depends on the choice of the group.
    """
    merged: dict[str, tuple[str, str]] = {}
    for file in files:
        for path in sorted(CONFIGS.glob(f"{file}.yaml")):
            for name, option in _options_of_node(path, node):
                default, comment = merged.get(name, (_write_default(path, option), ""))
                merged[name] = (default, comment or option.comment)
    return merged


def _options_of_node(path: Path, node: str) -> Iterator[tuple[str, WrittenOption]]:
    """Yields the options directly below a node in a file, by their names in the node.

    Args:
        path: of the config file; the options of a file of the group `node` are those of the node.
        node: dotted name; empty for the run, whose nodes are left out.
    """
    in_group = path.parent != CONFIGS and path.parent.name == node
    for option in read_options(path):
        name = option.name
        if node:
            if not (in_group or name.startswith(f"{node}.")):
                continue
            name = name.removeprefix(f"{node}.")
        elif not option.value:
            continue
        if "." not in name:
            yield name, option


def _write_default(path: Path, option: WrittenOption) -> str:
    """Returns a default, or the group whose choice it depends on."""
    if path.parent == CONFIGS:
        return "by `protocol`" if option.value == "???" else code(_shorten(option.value))
    group = path.parent.name
    if path.stem == "default" or group == "search":
        return code(_shorten(option.value))
    return f"by `{group}`"


def _explain(name: str, comment: str) -> str:
    return escape(load_texts("options").get(name, comment))


def _shorten(value: str) -> str:
    """Returns the default that an interpolation gives: for the defaults of the options it names."""
    if value.startswith("${timm:"):
        return "as timm has it"
    choice = _CHOICE.match(value)
    if choice is not None:
        cases = dict(case.split(":") for case in choice["cases"].split(","))
        for option in read_options(CONFIGS / "train.yaml"):
            if option.name == choice["name"] and option.value in cases:
                return cases[option.value]
    return shorten_reference(value)


def _tabulate_choices(group: str) -> str:
    rows = []
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        header = read_header(path)
        choice = f"{group}={path.stem}"
        command = f"python train.py {choice}"
        if header.commands:
            command = header.commands[0]
        about = first_sentence(header.text).partition(": ")[0].rstrip(":")
        if not about:
            about = _read_comment(path, "_target_")
        text = load_texts("options").get(choice, about)
        rows.append((code(path.stem), escape(text), code(command)))
    return table(("choice", "description", "command"), rows)


def _read_comment(path: Path, name: str) -> str:
    """Returns the comment of an option; empty if the file has no such option."""
    for option in read_options(path):
        if option.name == name:
            return option.comment
    return ""


def _tabulate_group_options(group: str) -> str:
    rows = []
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        rows += _rows_of_file(group, path.stem)
    return table(("choice", "option", "default", "meaning"), rows)


def _rows_of_file(group: str, choice: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in read_options(CONFIGS / group / f"{choice}.yaml"):
        if one.name.startswith(("name", "_", "defaults")) or not one.value:
            continue
        name = f"{group}.{one.name.removeprefix(f'{group}.')}"
        default = code(_shorten(one.value))
        rows.append((code(choice), code(name), default, _explain(name, one.comment)))
    return rows


def _defaults() -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "train.yaml"))
    defaults = {}
    for entry in content["defaults"]:
        if isinstance(entry, dict):
            for group, choice in entry.items():
                if choice is not None:
                    defaults[group] = choice
    return defaults
