"""Parts that the pages of losses and of methods have in common."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dml.core.installation import CONFIGS
from scripts.docs.commented_yaml import WrittenOption, read_options
from scripts.docs.experiment_index import list_experiments
from scripts.docs.markdown import NOTE, code, escape, table

_FALLBACK = re.compile(r"^\$\{oc\.select:protocol\.lookup\.([\w.]+),([^}]*)\}$")
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
        default, comment = option.value, option.comment
        if found := _FALLBACK.match(default):
            default = found[2]
            comment = f"{comment}; other protocols and data set another value".lstrip("; ")
        meaning = meanings.get(argument, "")
        rows.append((code(option.name), code(default), escape(meaning), escape(comment)))
    last = "range and published values" if meanings else "meaning"
    return table(("option", "default", "meaning", last), rows)


def tabulate_space(name: str) -> str:
    """Returns the table of the search ranges of a loss or a method; empty if it has none."""
    path = CONFIGS / "space" / f"{name}.yaml"
    if not path.exists():
        return ""
    rows = []
    for option in read_options(path):
        node = dict(re.findall(r"(\w+): ?([\w.+-]+)", option.value))
        scale = "logarithmic" if "log" in node else "integers" if "int" in node else "uniform"
        limits = f"{node['low']} to {node['high']}"
        rows.append((code(option.name), limits, scale, escape(option.comment)))
    return table(("option", "range", "scale", "remark"), rows)


def tabulate_experiments(group: str, choice: str) -> str:
    """Returns the table of the experiments with a loss or a method; empty if there is none."""
    rows = [
        (code(f"experiment={one.id}"), escape(one.title), write_hours(one.gpu_hours))
        for one in list_experiments()
        if one.uses(group, choice)
    ]
    return table(("experiment", "title", "GPU hours"), rows)


def write_hours(hours: float | None) -> str:
    """Returns hours as in the configs: 550, 0.067."""
    return "" if hours is None else f"{hours:g}"
