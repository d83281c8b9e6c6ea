"""The page of a claims experiment in Markdown, with its picture and the tables behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.table import Table

from dml.config.schema import ExperimentConfig
from dml.core.atomic_io import write_text
from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.core.statistics import Estimate
from dml.reporting.catalog import Cell
from dml.reporting.claims.claim_figure import MEASURES, draw_claims
from dml.reporting.claims.claim_tests import evaluate_claims, read_claims
from dml.reporting.claims.seed_results import (
    CurvePoint,
    SeedResult,
    read_csv,
    read_results,
    write_csv,
)
from dml.runs.console import console

# Keys of a loss or method that decide nothing by themselves.
NOT_OPTIONS = ("name", "result_id", "batch_kind", "_target_")


class NoRunsError(UserError):
    """No run of an experiment is finished."""


def write_claims_page(about: ExperimentConfig, cells: Sequence[Cell], out: Path) -> list[Path]:
    """Writes `<id>.md`, `<id>.png`, and the results and curves behind them as CSV.

    Args:
        about: the experiment, with its claims.
        cells: its runs; arms that are not finished are left out and listed.
        out: folder of the page.

    Returns:
        The written files.

    Raises:
        NoRunsError: no run is finished.
        UserError: a run cannot be read.
    """
    id = cells[0].experiment
    results, curves = read_results(cells)
    if not results:
        command = f"{shell_command('train')} experiment={id}"
        raise NoRunsError(f"{id}: no finished runs with its own settings; {command} trains them")
    tests = evaluate_claims(read_claims(about.claims), results)
    picture = out / f"{id}.png"
    texts = {
        out / f"{id}.md": _render(
            id=id,
            title=about.title,
            picture=picture.name,
            tests=tests,
            **_describe_design(cells),
            **_describe_results(results, curves),
            missing=sorted(_arms(cells) - {result.arm for result in results}),
        ),
        out / f"{id}.csv": write_csv(results),
        out / f"{id}_curves.csv": write_csv(curves),
    }
    for path, text in texts.items():
        write_text(path, text)
    draw_claims(curves, tests, picture)
    return [*texts, picture]


def print_verdicts(id: str, about: ExperimentConfig, path: Path) -> None:
    """Prints the verdicts of a CSV file that `write_claims_page` wrote, computed anew.

    Raises:
        UserError: the file does not hold results of these claims.
    """
    tests = evaluate_claims(read_claims(about.claims), read_csv(path))
    if not tests:
        raise UserError(f"{path} holds no results of {id}")
    table = Table("claim", "measure", "difference", "p (Holm)", "verdict", title=str(path))
    for one in tests:
        change, digits = one.difference, one.digits
        shown = f"{change.mean:+.{digits}f} ± {change.half_width:.{digits}f}"
        p_value = _format_p_value(one.corrected)
        table.add_row(one.claim.text, MEASURES[one.measure], shown, p_value, one.verdict)
    console.print(table)


def _format_p_value(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"


def _render(id: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("dml.reporting"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {
        "number": lambda value, digits: f"{value:.{digits}f}",
        "signed": lambda value, digits: f"{value:+.{digits}f}",
        "p_value": _format_p_value,
    }
    return environment.get_template("claims.md.j2").render(
        id=id,
        measures=MEASURES,
        train=shell_command("train"),
        report=f"{shell_command('report')} {id} --out docs/results",
        **values,
    )


def _arms(cells: Sequence[Cell]) -> set[str]:
    return {str(cell.config.experiment.setting) for cell in cells}


def _describe_design(cells: Sequence[Cell]) -> Mapping[str, Any]:
    arms = []
    for cell in cells:
        searched = cell.config.space.own
        choices = [f"`{name}` {', '.join(map(str, one.choices))}" for name, one in searched.items()]
        arms.append((cell.config.experiment.setting, _fixed_options(cell), "; ".join(choices)))
    cfg = cells[0].config
    intervals: dict[int, list[str]] = {}
    for cell in cells:
        protocol = cell.config.protocol
        interval = protocol.evaluate_every * protocol.steps_per_epoch
        intervals.setdefault(interval, []).append(str(cell.config.experiment.setting))
    weights = Path(cfg.backbone.weights).name
    return {"cfg": cfg, "settings": arms, "intervals": intervals, "weights": weights}


def _fixed_options(cell: Cell) -> str:
    """Lists the options of a cell's loss and method that its search leaves as they are."""
    cfg = cell.config
    rate = "loss_lr_ratio" if cfg.optim.loss_lr is None else "loss_lr"
    groups = {"loss": cfg.loss, "method": cfg.method, "optim": {rate: cfg.optim[rate]}}
    return " ".join(
        f"`{group}.{name}={value}`"
        for group, options in groups.items()
        for name, value in options.items()
        if name not in NOT_OPTIONS
        and value is not None
        and not name.endswith("_reg_weight")  # of PML's regularizers, which are off
        and f"{group}.{name}" not in cfg.space.own
    )


def _describe_results(
    results: Sequence[SeedResult], curves: Sequence[CurvePoint]
) -> Mapping[str, Any]:
    by_arm: dict[str, list[SeedResult]] = {}
    for result in results:
        by_arm.setdefault(result.arm, []).append(result)
    return {
        "arms": [_describe_arm(name, own, curves) for name, own in by_arm.items()],
        "staged": any(result.stages for result in results),
        "selection": _compare_selection(by_arm),
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


def _compare_selection(by_arm: Mapping[str, Sequence[SeedResult]]) -> Mapping[str, Any]:
    """Returns what selection on test classes would change: points gained, and the order of arms."""
    fair = {arm: fmean(one.map_at_r for one in own) for arm, own in by_arm.items()}
    flattered = {arm: fmean(one.best_on_test for one in own) for arm, own in by_arm.items()}
    gaps = {arm: flattered[arm] - fair[arm] for arm in fair}
    largest = max(gaps, key=gaps.__getitem__)
    same = sorted(fair, key=fair.__getitem__) == sorted(fair, key=flattered.__getitem__)
    mean = fmean(gaps.values())
    return {"mean": mean, "largest": largest, "most": gaps[largest], "same_order": same}


def _mean(values: Sequence[float]) -> str:
    estimate = Estimate(tuple(values))
    return f"{estimate.mean:.2f}" + (f" ± {estimate.ci95:.2f}" if estimate.ci95 is not None else "")
