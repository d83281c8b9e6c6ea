"""Parts that the pages of losses and of methods have in common."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dml.core.installation import CONFIGS
from scripts.docs.commented_yaml import WrittenOption, read_options
from scripts.docs.experiment_index import list_experiments
from scripts.docs.markdown import NOTE, code, escape, table

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,
)


def render(template: str, **values: object) -> str:
    """Returns a page from a file of `templates/`, without runs of empty lines."""
    text = _ENVIRONMENT.get_template(template).render(note=NOTE, **values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def tabulate_arguments(options: list[WrittenOption], meanings: dict[str, str], prefix: str) -> str:
    """Returns the table of the arguments of a loss or a method.

    Args:
        options: of its config, with dotted names.
        meanings: from the docstring of its class, by argument.
        prefix: of the dotted names of its options: `loss.`, `method.` or empty for a file of one
            group.
    """
    rows = []
    for option in options:
        argument = option.name.removeprefix(prefix)
        default, comment = shorten_reference(option.value), option.comment
        depends = dict.fromkeys(re.findall(r"by:([\w.+]+)", option.value))
        if depends:
            comment = f"{comment}; depends on {', '.join(map(code, depends))}".lstrip("; ")
        meaning = meanings.get(argument, "")
        rows.append((code(option.name), code(default), escape(meaning), escape(comment)))
    last = "range and published values" if meanings else "meaning"
    return table(("option", "default", "meaning", last), rows)


def shorten_reference(value: str) -> str:
    """Returns the default of `${by:…}`, the name in `${name}`, and other values as they are."""
    if value.startswith("${"):
        return value.removeprefix("${").rpartition(",")[2].rstrip("}")
    return value


def tabulate_space(group: str, name: str) -> str:
    """Returns the table of the search ranges of a loss or a method; empty if it has none."""
    rows = []
    for option in read_options(CONFIGS / group / f"{name}.yaml"):
        if not (option.name.startswith("space.") and option.value):
            continue
        node = dict(re.findall(r"(\w+): ?([\w.+-]+)", option.value))
        scale = "uniform"
        if "log" in node:
            scale = "logarithmic"
        elif "int" in node:
            scale = "integers"
        limits = f"{node['low']} to {node['high']}"
        searched = option.name.removeprefix("space.")
        rows.append((code(searched), limits, scale, escape(option.comment)))
    return table(("option", "range", "scale", "remark"), rows)


def tabulate_experiments(group: str, choice: str) -> str:
    """Returns the table of the experiments with a loss or a method; empty if there is none."""
    rows = []
    for experiment in list_experiments():
        if experiment.uses(group, choice):
            about = experiment.about
            hours = write_hours(about.gpu_hours)
            rows.append((code(f"experiment={about.id}"), escape(about.title), hours))
    return table(("experiment", "title", "GPU hours"), rows)


def write_hours(hours: float | None) -> str:
    """Returns hours as in the configs: 550, 0.067."""
    return "" if hours is None else f"{hours:g}"
