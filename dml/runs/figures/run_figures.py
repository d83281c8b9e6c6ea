"""The figures that every run ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dml.config.identity import method_name
from dml.config.schema import Config
from dml.runs.context import RunContext
from dml.runs.figures.drawing import learning_curve
from dml.runs.figures.embedding_map import MIN_POINTS, draw_embedding_maps, select_points
from dml.runs.figures.neighbor_grid import draw_neighbors
from dml.runs.figures.positivity_curve import draw_model_positivity
from dml.runs.figures.stages import stage_curve
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_list import Job
from dml.runs.scores.evaluator import SplitEmbeddings
from dml.tracking import History

FEW_POINTS = 600  # of a map that every run draws: a few seconds


def draw_figures(context: RunContext, jobs: Sequence[Job], folder: RunFolder) -> None:
    """Draws the learning curves of all models, and neighbors and a map of the first one.

    Neighbors and map show the test images as embedded by the network before and after training.
    """
    config = context.config
    name = f"{method_name(config.loss['name'], config.method['name'])} on {config.data.name}"
    context.world.broadcast_from_main(lambda: _draw_curves(config, jobs, folder, name))
    first = JobRun(context, jobs[0], folder.job(jobs[0].name))
    networks = {"before training": first.embed_test()}  # a new job has the initial weights
    best = first.load_best()
    networks["after training"] = first.embed_test()
    if best["step"] == 0:  # of an untrained network
        networks = {"nearest": networks["after training"]}
    context.world.broadcast_from_main(lambda: _draw_test_images(first, networks, name, folder))
    if "positivity" in config.evaluation.measures:
        path = folder.figures / "positivity.png"
        context.world.broadcast_from_main(lambda: draw_model_positivity(first, path))


def _draw_test_images(
    job: JobRun, networks: Mapping[str, SplitEmbeddings], name: str, folder: RunFolder
) -> None:
    path = folder.figures / "neighbors.png"
    draw_neighbors(job.job.test, networks, job.transforms.test, name, path)
    panels = {}
    for title, embeddings in networks.items():
        vectors, classes = embeddings.query.float(), embeddings.query_labels
        panels[title] = select_points(vectors.cpu().numpy(), classes.cpu().numpy(), FEW_POINTS)
    points, labels = next(iter(panels.values()))
    if len(points) >= MIN_POINTS:
        about = f"{name}: {len(points)} test images of {len(np.unique(labels))} unseen classes"
        draw_embedding_maps(panels, about, folder.figures / "embedding_map.png")


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
