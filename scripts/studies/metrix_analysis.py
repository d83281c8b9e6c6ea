"""Analysis of a finished run's embedding space (metrix, §3.6 and §4.3).

Measures the alignment and uniformity of the test embeddings, the utilization of the training
embeddings without and with mixed ones, and the positivity of mixes against λ.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from dml.core.atomic_io import write_text
from dml.core.errors import UserError
from dml.data.protocol import Job, Split
from dml.losses.cosine import unit_rows
from dml.methods.metrix import Metrix
from dml.methods.metrix.analysis import embed_mixes, measure_positivity
from dml.retrieval.geometry import alignment, uniformity, utilization
from dml.runs.folder.run_folder import RunFolder, load_cfg, load_config
from dml.runs.job import JobRun, RunContext
from dml.training.checkpoint_files import read_checkpoint


def analyze_metrix(
    run_folder: str | Path, epochs: int = 1, job_number: int = 0
) -> dict[str, float]:
    """Measures the best network of a run; writes CSV files and a picture into its `analysis/`.

    Args:
        run_folder: `outputs/…/seed<seed>-<digest>`.
        epochs: number of epochs of mixed embeddings (utilization) and batches (positivity).
        job_number: index of the run's model.

    Returns:
        `alignment`, `uniformity`, `utilization`, and for a run of Metrix `utilization_mixed`.

    Raises:
        UserError: the run does not exist, or its data are absent.
    """
    folder = RunFolder(run_folder).path / "analysis"
    run, job = _load_best(run_folder, job_number)
    test = run.evaluator(job.test).embed(run.embedder)
    queries = unit_rows(test.query)[0]
    training = unit_rows(run.evaluator(Split(job.train)).embed(run.embedder).query)[0]
    measures = {
        "alignment": alignment(queries, test.query_labels),
        "uniformity": uniformity(queries),
        "utilization": utilization(queries, training),
    }
    method = run.method
    if isinstance(method, Metrix):
        mixed = embed_mixes(method, run.embedder, run.batches(epochs))
        measures["utilization_mixed"] = utilization(queries, itertools.chain([training], mixed))
    write_measures(measures, folder / "measures.csv")
    try:
        curve = measure_positivity(method.loss, run.embedder, run.batches(epochs))  # type: ignore[arg-type]
    except UserError:
        return measures  # undefined for a loss with proxies or without a generic form
    curve.write(folder / "positivity.png")
    return measures


def _load_best(run_folder: str | Path, job_number: int) -> tuple[JobRun, Job]:
    """Returns a model of a run with the weights of its best epoch, in evaluation mode."""
    config, folder = load_config(run_folder), RunFolder(run_folder)
    config.backbone["weights"] = "none"  # the checkpoint holds them
    context = RunContext(load_cfg(run_folder), config)
    job = context.jobs[job_number]
    run = JobRun(context, job, folder.job(job.name))
    try:
        best = read_checkpoint(folder.job(job.name) / "best.pt")
    except FileNotFoundError as error:
        raise UserError(f"run: {run_folder} has no trained model {job.name}") from error
    run.embedder.load_state_dict(best["embedder"])
    run.method.load_state_dict(best["method"])
    run.embedder.eval()
    return run, job


def write_measures(measures: dict[str, float], path: Path) -> None:
    """Writes a CSV file with the columns `measure` and `value`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name},{value:.6g}" for name, value in measures.items()]
    write_text(path, "\n".join(["measure,value", *lines, ""]))
