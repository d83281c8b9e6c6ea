"""Trainings that differ in one option, to show what it does in the setting of a pilot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from dml.config.check import check
from dml.config.schema import Config
from dml.core.atomic_io import write_text
from dml.results.catalog import list_cells
from dml.runs.experiment import run
from dml.runs.figures.drawing import COLORS, plt, save, tidy
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import read_run
from scripts.studies.seed_results import write_csv

STYLES = ("-", "--")


@dataclass(frozen=True)
class Explanation:
    """Variants of one arm of a pilot.

    Attributes:
        experiment: whose settings the trainings have, without its search.
        options: of all variants.
        variants: label → further options.
        measures: column of `history.csv` → title of its panel.
        groups: of variants, in equal parts: a line style each, with the same colors.
    """

    experiment: str
    options: Sequence[str]
    variants: Mapping[str, Sequence[str]]
    measures: Mapping[str, str]
    groups: int = 1


@dataclass(frozen=True)
class Point:
    """One value of one evaluation."""

    variant: str
    repeat: int
    step: int
    measure: str
    value: float


EXPLANATIONS = {
    "mean_field": Explanation(
        "claims_mean_field",
        ("optim.lr=1e-3", "protocol.epochs=24"),
        {
            f"{loss}, {classes} classes": (f"loss={loss}", f"data.reader.classes={2 * classes}")
            for loss in ("mfcwms", "proxy_anchor")
            for classes in (12, 25, 50, 100)
        },
        {"test_map_at_r": "MAP@R on as many unseen classes"},
        groups=2,
    ),
    "potential_field": Explanation(
        "claims_potential_field",
        (
            *("loss=pfml", "data.label_noise=0.0", "optim.lr=1e-3"),
            "evaluation.measures=[w2,inter_class_distance]",
        ),
        {
            f"alpha {alpha}, delta {delta}": (f"loss.alpha={alpha}", f"loss.delta={delta}")
            for alpha in (1, 4)
            for delta in (0.2, 0.5, 1.0)
        },
        {
            "test_map_at_r": "MAP@R on unseen classes",
            "w2": "distance of proxies to images of their class",
            "inter_class_distance": "distance between classes",
        },
        groups=2,
    ),
    "chance_constraints": Explanation(
        "claims_chance_constraints",
        (
            *("loss=c2", "optim.lr=1e-3", "protocol.epochs=24"),
            "evaluation.measures=[covering_radius,inter_class_distance]",
        ),
        {
            f"{name}, margin {margin}": (*method, f"loss.positive_margin={margin}")
            for name, method in {
                "CCP": ("method=ccp", "method.stages=null"),
                "plain": ("method=plain",),
            }.items()
            for margin in (0.0, 0.14, 0.28)
        },
        {
            "test_map_at_r": "MAP@R on unseen classes",
            "covering_radius": "covering radius of classes",
            "inter_class_distance": "distance between classes",
        },
        groups=2,
    ),
}


def explain(subject: str, out: Path, overrides: Sequence[str] = ()) -> list[Point]:
    """Trains the variants, or continues, and draws their curves.

    Args:
        subject: key of `EXPLANATIONS`.
        out: PNG to write; a CSV file of the same name is written beside it.
        overrides: options of all variants, as on the command line.
    """
    about = EXPLANATIONS[subject]
    points = list(_train(about, overrides))
    write_text(out.with_suffix(".csv"), write_csv(points))
    _draw(about, points, out)
    return points


def _train(about: Explanation, overrides: Sequence[str]) -> Iterator[Point]:
    for name, options in about.variants.items():
        # with seed 0, repeat 0 would start with the head with which the backbone was pretrained
        words = [*about.options, *options, "protocol.repeats=3", "seed=1", *overrides]
        cfg = list_cells(about.experiment, words)[0].config.copy()
        cfg.search = None
        cfg.experiment.id = "explanations"
        checked = check(cfg, Config)
        run(cfg, checked)
        for row in read_run(RunFolder.of(cfg, checked).path).history:
            for measure in (one for one in about.measures if one in row):  # no loss at step 0
                value = (100 if measure.endswith("map_at_r") else 1) * row[measure]
                yield Point(name, int(row["repeat"]), int(row["step"]), measure, value)


def _draw(about: Explanation, points: Sequence[Point], path: Path) -> None:
    """Draws a panel for each measure, with the mean and the range over repeats."""
    count, columns = len(about.variants), len(about.measures)
    size = (max(6.5, 4.2 * columns), 4.6)
    figure, axes = plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
    for axis, (measure, title) in zip(axes[0], about.measures.items(), strict=True):
        for number, name in enumerate(about.variants):
            group, place = divmod(number, count // about.groups)
            own = [one for one in points if (one.variant, one.measure) == (name, measure)]
            steps = sorted({one.step for one in own})
            values = [[one.value for one in own if one.step == step] for step in steps]
            look = {"color": COLORS[place], "ls": STYLES[group]}
            axis.plot(steps, [fmean(some) for some in values], **look, lw=1.5, label=name)
            axis.fill_between(
                steps, [*map(min, values)], [*map(max, values)], color=COLORS[place], alpha=0.1
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        tidy(axis)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    columns = min(count, 2 * columns)  # as many as fit into the width
    figure.legend(
        handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=columns
    )
    save(figure, path)
