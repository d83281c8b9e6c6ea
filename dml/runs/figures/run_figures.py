"""The figures that every run ends with."""

from __future__ import annotations

from collections.abc import Sequence

from dml.config.schema import Config
from dml.runs.context import RunContext
from dml.runs.figures.drawing import learning_curve
from dml.runs.figures.positivity_curve import draw_model_positivity
from dml.runs.figures.stages import stage_curve
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.summary import result_id
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_list import Job
from dml.tracking import History


def draw_figures(context: RunContext, jobs: Sequence[Job], folder: RunFolder) -> None:
    """Draws the learning curves of all models, and the neighbors that the first one retrieves."""
    config = context.config
    name = f"{result_id(config)} on {config.data.name}"
    context.world.broadcast_from_main(lambda: _draw_curves(config, jobs, folder, name))
    first = JobRun(context, jobs[0], folder.job(jobs[0].name))
    first.load_best()
    first.draw_neighbors(name, folder.figures / "neighbors.png")
    if "positivity" in config.evaluation.measures:
        path = folder.figures / "positivity.png"
        context.world.broadcast_from_main(lambda: draw_model_positivity(first, path))


def _draw_curves(config: Config, jobs: Sequence[Job], folder: RunFolder, name: str) -> None:
    history = History(folder.history)
    select = config.protocol.select_metric
    learning_curve(
        [history.job_rows(*job.key) for job in jobs],
        select,
        f"{name}, protocol {config.protocol.name}",
        folder.figures / "learning_curve.png",
    )
    rows = history.job_rows(*jobs[0].key)
    if any("stage" in row for row in rows):
        stage_curve(rows, select, name, folder.figures / "stages.png")
