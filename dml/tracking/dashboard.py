"""A W&B workspace for runs of `tracking=wandb`: curves and final scores per loss."""

from __future__ import annotations

import json
from typing import Any

from dml.core.errors import UserError

CURVES = {
    "MAP@R": "map_at_r",
    "R-precision": "r_precision",
    "Recall@1": "recall_at_1",
    "training loss": "loss",
}
BARS = {
    "MAP@R on test, best epoch": "test/map_at_r",
    "Recall@1 on test, best epoch": "test/recall_at_1",
    "MAP@R, models concatenated": "concatenated/map_at_r",
    "training images per second": "images_per_second",
}
PICTURES = ("figures/neighbors", "figures/embedding_map", "figures/learning_curve")
COLUMNS = ("test/map_at_r", "combined/map_at_r", "combined_ci95/map_at_r", "concatenated/map_at_r")
MAX_RUNS = 200  # W&B's default of 10 is less than one loss with folds and repeats


def build_workspace(project: str, entity: str, experiment: str | None, by: str) -> Any:
    """Returns a `wandb_workspaces.workspaces.Workspace` that is not saved yet.

    Args:
        project: W&B project of the runs.
        entity: user or team that it belongs to.
        experiment: experiment whose runs to show; None shows all.
        by: dotted option whose values are compared; other differences (folds, repeats, seeds) are
            shown as mean and standard deviation.

    Raises:
        UserError: wandb-workspaces is not installed.
    """
    try:
        from wandb_workspaces import workspaces as ws
        from wandb_workspaces.reports import v2 as panels
    except ImportError as error:
        raise UserError(f"{error}; pip install -e '.[wandb]'") from error

    spread: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    curves: list[Any] = [
        panels.LinePlot(title=title, x="epoch", y=[name], max_runs_to_show=MAX_RUNS, **spread)
        for title, name in CURVES.items()
    ]
    bars: list[Any] = [
        panels.BarPlot(title=title, metrics=[name], max_runs_to_show=MAX_RUNS, **spread)
        for title, name in BARS.items()
    ]
    pictures: list[Any] = [
        panels.MediaBrowser(title=key.split("/")[1], media_keys=[key]) for key in PICTURES
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"MAP@R by {by}" + (f", {experiment}" if experiment else ""),
        auto_generate_panels=False,
        sections=[
            ws.Section(name="Curves", panels=curves, is_open=True),
            ws.Section(name="Final scores", panels=bars, is_open=True),
            ws.Section(name="Pictures", panels=pictures),
        ],
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=MAX_RUNS),
        runset_settings=ws.RunsetSettings(
            groupby=[ws.Config(by)],
            filters=ws.And(ws.Metric("Group") == experiment) if experiment else "",
            pinned_columns=[f"summary:{name}" for name in COLUMNS],
        ),
    )


def as_json(unsaved: Any) -> dict[str, Any]:
    """Returns what `save` would send; the library has no public function for it."""
    model = unsaved._to_model()
    return {
        "entity": model.entity,
        "project": model.project,
        "name": model.display_name,
        "spec": json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True)),
    }


def save(unsaved: Any) -> str:
    """Saves a workspace and returns its address.

    Raises:
        UserError: W&B rejects it.
    """
    try:
        return unsaved.save().url
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"W&B could not save the workspace: {reason}") from error
