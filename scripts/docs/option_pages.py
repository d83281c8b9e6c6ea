"""Reference of all options, and of the groups of configs with their choices."""

from __future__ import annotations

from collections.abc import Iterator
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
_NOT_PAGES = {"experiment", "loss", "method"}  # groups with pages of their own


def make_option_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    head = ("option", "default", "type and range", "meaning")
    sections = [
        {"title": title, "options": table(head, _list_rows(node, files, model))}
        for node, title, files, model in _SECTIONS
    ]
    evaluate = [
        (code(name), code(one.value), _describe(schema.EvaluateConfig, name), escape(one.comment))
        for name, one in _read("evaluate").items()
        if "." not in name and name not in ("defaults", "embedder", "hydra")
    ]
    groups = [
        (group, group in _defaults(), _tabulate_choices(group))
        for group in sorted({*list_groups(), "params"} - _NOT_PAGES)
    ]
    return {
        "reference/options.md": render(
            "options.md",
            sections=sections,
            backbones=_tabulate_group_options("backbone"),
            trackers=_tabulate_group_options("tracking"),
            evaluate=table(head, evaluate),
        ),
        "reference/groups.md": render("groups.md", groups=groups, defaults=_defaults()),
    }


def _list_rows(
    node: str, files: tuple[str, ...], model: type[schema.Node] | None
) -> Iterator[tuple[str, ...]]:
    """Yields the rows of a node: the options of the typed config, or else those of the files."""
    prefix = f"{node}." if node else ""
    written = _merge(files, node)
    fields = list_fields(model) if model else dict.fromkeys(written)
    for name, annotation in fields.items():
        type_ = describe_option(annotation) if annotation is not None else ""
        if model and (type_ in ("", "null") or (type_ == "options" and name not in written)):
            continue  # a node with a section, or a group with choices
        value, comment = written.get(name, ("", ""))
        yield code(prefix + name), value, escape(type_), _explain(prefix + name, comment)


def _merge(files: tuple[str, ...], node: str) -> dict[str, tuple[str, str]]:
    """Returns default and comment of each option of a node from the first file that has it.

    The default of an option that `train.yaml` lacks depends on the choice of the group.
    """
    found: dict[str, tuple[str, str]] = {}
    paths = [path for file in files for path in sorted(CONFIGS.glob(f"{file}.yaml"))]
    for path in paths:
        group = path.parent.name if path.parent != CONFIGS else ""
        single = path.stem == "default" or group == "search"
        for one in read_options(path):
            name = one.name
            if node and not (group == node or name.startswith(f"{node}.")):
                continue
            name = name.removeprefix(f"{node}.") if node else name
            if "." in name or (not one.value and not node):
                continue
            default = code(_shorten(one.value)) if not group or single else f"by `{group}`"
            default = "by `protocol`" if one.value == "???" and not group else default
            old = found.get(name, (default, ""))
            found[name] = (old[0], old[1] or one.comment)
    return found


def _explain(name: str, comment: str) -> str:
    return escape(load_texts("options").get(name, comment))


def _shorten(value: str) -> str:
    """Returns the fallback of an interpolation instead of the interpolation."""
    return "as timm has it" if value.startswith("${timm:") else shorten_reference(value)


def _tabulate_choices(group: str) -> str:
    rows = []
    for path in sorted((CONFIGS / group).glob("*.yaml")):
        header = read_header(path)
        command = header.commands[0] if header.commands else f"python train.py {group}={path.stem}"
        choice = f"{group}={path.stem}"
        targets = [one.comment for one in read_options(path) if one.name == "_target_"]
        about = first_sentence(header.text).partition(": ")[0].rstrip(":") or "".join(targets)
        text = load_texts("options").get(choice, about)
        rows.append((code(path.stem), escape(text), code(command)))
    return table(("choice", "description", "command"), rows)


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
        name = one.name if one.name.startswith(f"{group}.") else f"{group}.{one.name}"
        default = code(_shorten(one.value))
        rows.append((code(choice), code(name), default, _explain(name, one.comment)))
    return rows


def _read(name: str) -> dict[str, WrittenOption]:
    return {one.name: one for one in read_options(CONFIGS / f"{name}.yaml")}


def _describe(model: type[schema.Node], name: str) -> str:
    return escape(describe_option(list_fields(model)[name]))


def _defaults() -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "train.yaml"))
    return {
        key: value
        for entry in content["defaults"]
        if isinstance(entry, dict)
        for key, value in entry.items()
        if value is not None
    }
