"""A page per loss, and the table of all losses."""

from __future__ import annotations

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

_BASELINES = "dml.losses.baselines."  # with the arguments of pytorch-metric-learning
_KEYS = ("loss.name", "loss.result_id", "loss.batch_kind", "loss._target_")
# Arguments of every loss of pytorch-metric-learning, which the pages list apart.
_COMMON = {"embedding_regularizer", "embedding_reg_weight", "reducer", "distance", "collect_stats"}
_COMMON |= {"weight_init_func", "weight_regularizer", "weight_reg_weight"}
_BATCHES = {
    "pair": "needs several images of a class in a batch: four, or five under `metrix` on SOP and "
    "In-Shop. Otherwise `traditional`, `pfml` and `metrix` draw the published datasets at random, "
    "as their papers do; `data.sampler=balanced` draws four of a class there, too",
    "classification": "takes any batch, since images are compared with learned vectors",
}


def make_loss_pages() -> dict[str, str]:
    """Returns the pages by their path below `docs/`."""
    pages = {}
    ours: list[tuple[str, ...]] = []
    theirs: list[tuple[str, ...]] = []
    for name, description in load_descriptions("losses").items():
        pages[f"losses/{name}.md"] = _make_page(name, description)
        options = _read(name)
        kind = options["loss.batch_kind"].value
        row = (f"[`{name}`]({name}.md)", description.title, code(kind), escape(description.note))
        is_baseline = options["loss._target_"].value.startswith(_BASELINES)
        rows = theirs if is_baseline else ours
        rows.append(row)
    head = ("choice", "name", "batches", "note")
    tables = {"ours": table(head, ours), "theirs": table(head, theirs)}
    pages["losses/index.md"] = render("losses.md", **tables)
    return pages


def _read(name: str) -> dict[str, WrittenOption]:
    options = read_options(CONFIGS / "loss" / f"{name}.yaml")
    return {option.name: option for option in options}


def _make_page(name: str, description: Description) -> str:
    options = _read(name)
    target, kind = options["loss._target_"].value, options["loss.batch_kind"].value
    ours = not target.startswith(_BASELINES)
    meanings = read_docstring(get_object(target)).arguments if ours else {}
    arguments, common = [], []
    for option in options.values():
        if not option.name.startswith("loss.") or option.name in _KEYS:
            continue
        if not ours and _is_common(option):
            common.append(option)
        else:
            arguments.append(option)
    return render(
        "loss.md",
        name=name,
        description=description,
        header=read_header(CONFIGS / "loss" / f"{name}.yaml"),
        target=target,
        ours=ours,
        batches=f"`{kind}`: {_BATCHES[kind]}",
        learning_rate=_describe_learning_rate(options.get("optim.loss_lr_ratio")),
        arguments=tabulate_arguments(arguments, meanings, "loss."),
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
    published = list_published_values(name)
    options: list[str] = []
    for _, _, values in published:
        for option in values:
            if option not in options and not option.startswith("experiment."):
                options.append(option)
    rows = []
    for params, dataset, values in published:
        cells = [values.get(option, "") for option in options]
        rows.append((code(f"params={params}"), dataset, *cells))
    return table(("table", "data", *map(code, options)), rows)
