"""A page per method, and the table of all methods."""

from __future__ import annotations

from hydra.utils import get_object

from dml.core.installation import CONFIGS
from dml.methods.options import ALL_LOSSES, PROXY_LOSSES, SAMPLE_LOSSES
from scripts.docs.commented_yaml import WrittenOption, read_header, read_options
from scripts.docs.component_pages import (
    render,
    tabulate_arguments,
    tabulate_experiments,
    tabulate_space,
)
from scripts.docs.departures import tabulate_departures
from scripts.docs.descriptions import Description, load_descriptions
from scripts.docs.docstrings import read_docstring
from scripts.docs.markdown import escape, table
from scripts.docs.study_results import describe_findings

_KEYS = ("name", "result_id", "_target_")


def _list_losses(names: str, *, miner: bool = True) -> str:
    links = []
    for name in names.split(" | "):
        if miner or name != "ms_miner":
            links.append(f"[`{name}`](../losses/{name}.md)")
    return ", ".join(links)


_LOSSES = {
    "all": _list_losses(ALL_LOSSES),
    "samples": _list_losses(SAMPLE_LOSSES),
    "samples_without_miner": _list_losses(SAMPLE_LOSSES, miner=False),
    "proxies": _list_losses(PROXY_LOSSES),
}


def make_method_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    pages, rows = {}, []
    for name, description in load_descriptions("methods").items():
        pages[f"methods/{name}.md"] = _make_page(name, description)
        rows.append((f"[`{name}`]({name}.md)", description.title, escape(description.note)))
    methods = table(("choice", "name", "note"), rows)
    pages["methods/index.md"] = render("methods.md", methods=methods)
    return pages


def _make_page(name: str, description: Description) -> str:
    path = CONFIGS / "method" / f"{name}.yaml"
    written = read_options(path)
    by_name = {option.name: option for option in written}
    # A file that also sets options of other groups has those of the method below `method:`.
    prefix = "method." if "method" in by_name else ""
    target = by_name[f"{prefix}_target_"].value
    arguments, others = [], []
    for option in written:
        if not option.value:
            continue  # a node
        if option.name.startswith(prefix):
            if option.name.removeprefix(prefix) not in _KEYS:
                arguments.append(option)
        elif not option.name.startswith("space."):
            others.append(option)
    return render(
        "method.md",
        name=name,
        description=description,
        losses=description.losses.format(**_LOSSES),
        header=read_header(path),
        target=target,
        arguments=_tabulate(arguments, read_docstring(get_object(target)).arguments, prefix),
        others=tabulate_arguments(others, {}, ""),
        space=tabulate_space("method", name),
        departures=tabulate_departures(f"method/{name} "),
        findings=describe_findings(f"method={name}"),
        experiments="" if name == "plain" else tabulate_experiments("method", name),
    )


def _tabulate(options: list[WrittenOption], meanings: dict[str, str], prefix: str) -> str:
    """Returns the table of the arguments; the docstring fills in where the file says nothing."""
    described = []
    for option in options:
        argument = option.name.removeprefix(prefix)
        comment = option.comment or meanings.get(argument.split(".")[0], "")
        described.append(WrittenOption(f"method.{argument}", option.value, comment))
    return tabulate_arguments(described, {}, "method.")
