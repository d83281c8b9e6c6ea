"""The page of a pilot in Markdown, with its picture and the tables behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from omegaconf import OmegaConf

from dml.config.search_space import merge_spaces
from dml.core.atomic_io import write_text
from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.core.statistics import Estimate, mean_interval
from dml.results.catalog import Cell
from dml.runs.figures.drawing import COLORS, plt, save, tidy
from scripts.studies.seed_results import (
    FIRST_REPEAT,
    CurvePoint,
    SeedResult,
    read_results,
    write_csv,
)

STYLES = ("-", "--", ":")
# Keys of a loss or method that decide nothing by themselves.
NOT_OPTIONS = ("name", "result_id", "batch_kind", "_target_")


def write_pilot_page(cells: Sequence[Cell], out: Path) -> Path:
    """Writes `<id>.md`, `<id>.png`, and the results and curves behind them as CSV.

    Args:
        cells: runs of the experiment; arms that are not finished are left out and listed.
        out: folder of the page.

    Returns:
        The page.

    Raises:
        UserError: no run is finished, or one cannot be read.
    """
    id = cells[0].experiment
    results, curves = read_results(cells)
    if not results:
        command = f"{shell_command('train')} experiment={id}"
        raise UserError(f"{id}: no finished runs with its own settings; {command} trains them")
    texts = {
        out / f"{id}.md": render_page(cells, results, curves),
        out / f"{id}.csv": write_csv(results),
        out / f"{id}_curves.csv": write_csv(curves),
    }
    for path, text in texts.items():
        write_text(path, text)
    draw_curves(curves, out / f"{id}.png")
    return out / f"{id}.md"


def render_page(
    cells: Sequence[Cell], results: Sequence[SeedResult], curves: Sequence[CurvePoint]
) -> str:
    """Returns the page of the results of some cells."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    id = cells[0].experiment
    return environment.get_template("pilot.md.j2").render(
        id=id,
        train=shell_command("train"),
        report=f"python scripts/explain_claims.py {id}",
        missing=sorted(_arms(cells) - {result.arm for result in results}),
        **_describe_design(cells),
        **_describe_results(results, curves),
    )


def draw_curves(curves: Sequence[CurvePoint], path: Path) -> None:
    """Draws MAP@R on test classes against steps: a line per arm, a band for its 95 % interval."""
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for number, arm in enumerate(dict.fromkeys(point.arm for point in curves)):
        own = [point for point in curves if point.arm == arm]
        steps = sorted({point.step for point in own})
        values = [[point.test for point in own if point.step == step] for step in steps]
        means, halves = zip(*(mean_interval(some) for some in values), strict=True)
        color, style = COLORS[number % len(COLORS)], STYLES[number // len(COLORS)]
        axis.plot(steps, means, color=color, ls=style, lw=1.6, label=arm)
        low = [mean - (half or 0.0) for mean, half in zip(means, halves, strict=True)]
        high = [mean + (half or 0.0) for mean, half in zip(means, halves, strict=True)]
        axis.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)
    axis.set_xlabel("step")
    axis.set_ylabel("MAP@R on test classes, percent")
    axis.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    tidy(axis)
    save(figure, path)


def _arms(cells: Sequence[Cell]) -> set[str]:
    return {str(cell.config.experiment.setting) for cell in cells}


def _describe_design(cells: Sequence[Cell]) -> Mapping[str, Any]:
    arms = []
    for cell in cells:
        searched = _list_choices(cell)
        choices = [f"`{name}` {', '.join(map(str, them))}" for name, them in searched.items()]
        arms.append((cell.config.experiment.setting, _fixed_options(cell), "; ".join(choices)))
    cfg = cells[0].config
    intervals: dict[int, list[str]] = {}
    for cell in cells:
        protocol = cell.config.protocol
        interval = protocol.evaluate_every * protocol.steps_per_epoch
        intervals.setdefault(interval, []).append(str(cell.config.experiment.setting))
    weights = Path(cfg.backbone.weights).name
    return {
        "title": cfg.experiment.title,
        "cfg": cfg,
        "first_repeat": FIRST_REPEAT.get(cfg.data.name, 0),
        "settings": arms,
        "intervals": intervals,
        "weights": weights,
    }


def _list_choices(cell: Cell) -> dict[str, list[Any]]:
    """Returns the searched options of a cell with their choices."""
    space: Any = OmegaConf.to_container(cell.config.space, resolve=True)
    return {name: entry["choices"] for name, entry in merge_spaces(space, grid=True).items()}


def _fixed_options(cell: Cell) -> str:
    """Lists the options of a cell's loss and method that its search leaves as they are."""
    cfg = cell.config
    rate = "loss_lr_ratio" if cfg.optim.loss_lr is None else "loss_lr"
    searched = _list_choices(cell)
    groups = {"loss": cfg.loss, "method": cfg.method, "optim": {rate: cfg.optim[rate]}}
    return " ".join(
        f"`{group}.{name}={value}`"
        for group, options in groups.items()
        for name, value in options.items()
        if name not in NOT_OPTIONS
        and value is not None
        and not name.endswith("_reg_weight")  # of PML's regularizers, which are off
        and f"{group}.{name}" not in searched
    )


def _describe_results(
    results: Sequence[SeedResult], curves: Sequence[CurvePoint]
) -> Mapping[str, Any]:
    return {
        "arms": [_describe_arm(name, own, curves) for name, own in _group(results).items()],
        "staged": any(result.stages for result in results),
        "revisions": sorted({result.revision for result in results}),
        "torch": sorted({result.torch for result in results}),
        "devices": sorted({result.device for result in results}),
        "commands": list(dict.fromkeys(result.command for result in results)),
    }


def _describe_arm(
    name: str, own: Sequence[SeedResult], curves: Sequence[CurvePoint]
) -> Mapping[str, str]:
    stages = [one.stages for one in own if one.stages]
    untrained = [point.test for point in curves if (point.arm, point.step) == (name, 0)]
    return {
        "name": name,
        "untrained": f"{fmean(untrained):.2f}",
        "map_at_r": _mean([one.map_at_r for one in own]),
        "recall_at_1": _mean([one.recall_at_1 for one in own]),
        "best_step": f"{fmean(one.best_step for one in own):.0f}",
        "steps_to_95": f"{fmean(one.steps_to_95 for one in own):.0f}",
        "stages": f"{fmean(stages):.1f}" if stages else "",
        "chosen": own[0].chosen,
        "gap": _mean([one.best_on_test - one.map_at_r for one in own]),
    }


def _group(results: Sequence[SeedResult]) -> dict[str, list[SeedResult]]:
    by_arm: dict[str, list[SeedResult]] = {}
    for result in results:
        by_arm.setdefault(result.arm, []).append(result)
    return by_arm


def _mean(values: Sequence[float]) -> str:
    return Estimate(tuple(values)).format()
