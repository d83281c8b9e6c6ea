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
    kept = [name for name in names.split(" | ") if miner or name != "ms_miner"]
    return ", ".join(f"[`{name}`](../losses/{name}.md)" for name in kept)


_LOSSES = {
    "all": _list_losses(ALL_LOSSES),
    "samples": _list_losses(SAMPLE_LOSSES),
    "samples_without_miner": _list_losses(SAMPLE_LOSSES, miner=False),
    "proxies": _list_losses(PROXY_LOSSES),
}


def make_method_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    descriptions = load_descriptions("methods")
    pages = {f"methods/{name}.md": _make_page(name, one) for name, one in descriptions.items()}
    rows = [
        (f"[`{name}`]({name}.md)", one.title, escape(one.note))
        for name, one in descriptions.items()
    ]
    pages["methods/index.md"] = render(
        "methods.md", methods=table(("choice", "name", "note"), rows)
    )
    return pages


def _make_page(name: str, description: Description) -> str:
    path = CONFIGS / "method" / f"{name}.yaml"
    written = read_options(path)
    # A file that also sets options of other groups has its own below `method:`.
    prefix = "method." if any(one.name == "method" for one in written) else ""
    by_name = {one.name: one for one in written}
    target = by_name[f"{prefix}_target_"].value
    leaves = [one for one in written if one.value]
    own = [
        one
        for one in leaves
        if one.name.startswith(prefix) and one.name.removeprefix(prefix) not in _KEYS
    ]
    others = [one for one in leaves if prefix and not one.name.startswith((prefix, "space."))]
    return render(
        "method.md",
        name=name,
        description=description,
        losses=description.losses.format(**_LOSSES),
        header=read_header(path),
        target=target,
        arguments=_tabulate(own, read_docstring(get_object(target)).arguments, prefix),
        others=tabulate_arguments(others, {}, ""),
        space=tabulate_space("method", name),
        departures=tabulate_departures(f"method/{name} "),
        findings=describe_findings(f"method={name}"),
        experiments="" if name == "plain" else tabulate_experiments("method", name),
    )


def _tabulate(options: list[WrittenOption], meanings: dict[str, str], prefix: str) -> str:
    """Returns the table of the arguments; the docstring fills in where the file says nothing."""
    full = [
        WrittenOption(
            f"method.{argument}", one.value, one.comment or meanings.get(argument.split(".")[0], "")
        )
        for one in options
        if (argument := one.name.removeprefix(prefix))
    ]
    return tabulate_arguments(full, {}, "method.")
