"""A page per loss, and the table of all losses."""

from __future__ import annotations

from typing import Any

from hydra.utils import get_object

from dml.core.installation import CONFIGS
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
from scripts.docs.markdown import code, escape, table
from scripts.docs.published_values import list_published_values
from scripts.docs.study_results import describe_findings

_KEYS = ("loss.name", "loss.result_id", "loss.batch_kind", "loss._target_")
# Arguments of every loss of pytorch-metric-learning, which the pages list apart.
_COMMON = {"embedding_regularizer", "embedding_reg_weight", "reducer", "distance", "collect_stats"}
_COMMON |= {"weight_init_func", "weight_regularizer", "weight_reg_weight"}
_BATCHES = {
    "pair": "needs several images of a class in a batch, and gets them (four) except where a "
    "paper's protocol draws CUB, Cars, SOP or In-Shop at random (`traditional`, `pfml`, `metrix`); "
    "`data.sampler=balanced` draws four there, too",
    "classification": "takes any batch, since images are compared with learned vectors",
}


def make_loss_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    descriptions = load_descriptions("losses")
    pages = {f"losses/{name}.md": _make_page(name, one) for name, one in descriptions.items()}
    rows: dict[str, list[tuple[str, ...]]] = {"dml": [], "pml": []}
    for name, one in descriptions.items():
        options = _read(name)
        origin = "dml" if options["loss._target_"].value.startswith("dml.") else "pml"
        kind = options["loss.batch_kind"].value
        row = (f"[`{name}`]({name}.md)", one.title, code(kind), escape(one.note))
        rows[origin].append(row)
    head = ("choice", "name", "batches", "note")
    pages["losses/index.md"] = render(
        "losses.md", ours=table(head, rows["dml"]), theirs=table(head, rows["pml"])
    )
    return pages


def _read(name: str) -> dict[str, WrittenOption]:
    return {one.name: one for one in read_options(CONFIGS / "loss" / f"{name}.yaml")}


def _make_page(name: str, description: Description) -> str:
    options = _read(name)
    target, kind = options["loss._target_"].value, options["loss.batch_kind"].value
    ours = target.startswith("dml.")
    arguments = [
        one for one in options.values() if one.name.startswith("loss.") and one.name not in _KEYS
    ]
    common = [one for one in arguments if not ours and _is_common(one)]
    meanings = read_docstring(get_object(target)).arguments if ours else {}
    return render(
        "loss.md",
        name=name,
        description=description,
        header=read_header(CONFIGS / "loss" / f"{name}.yaml"),
        target=target,
        ours=ours,
        batches=f"`{kind}`: {_BATCHES[kind]}",
        learning_rate=_describe_learning_rate(options.get("optim.loss_lr_ratio")),
        arguments=tabulate_arguments(
            [one for one in arguments if one not in common], meanings, "loss."
        ),
        common=tabulate_arguments(common, {}, "loss."),
        published=_tabulate_published(name),
        space=tabulate_space("loss", name),
        departures=tabulate_departures(f"loss/{name} "),
        findings=describe_findings(f"loss={name}"),
        experiments=tabulate_experiments("loss", name),
    )


def _is_common(option: WrittenOption) -> bool:
    """Returns True for an argument of all losses of PML that has no value of the loss's own."""
    argument = option.name.removeprefix("loss.")
    return argument in _COMMON and option.value in ("null", "1")


def _describe_learning_rate(ratio: WrittenOption | None) -> str:
    if ratio is None:
        return "none"
    text = ratio.comment.replace("optim.lr", "`optim.lr`").replace("this", ratio.value)
    return escape(text.replace("optim.loss_lr", "`optim.loss_lr`"))


def _tabulate_published(name: str) -> str:
    found = list_published_values(name)
    options: dict[str, Any] = dict.fromkeys(
        key for _, _, values in found for key in values if not key.startswith("experiment.")
    )
    rows = [
        (code(f"params={params}"), dataset, *(values.get(key, "") for key in options))
        for params, dataset, values in found
    ]
    return table(("table", "data", *map(code, options)), rows)
