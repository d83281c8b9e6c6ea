"""Every run as rows of one table, own or contributed: a row per evaluation and repeat.

    frame = load_frame(Path("outputs"))
    frame.query("data == 'cub' and state == 'finished'").groupby("loss").map_at_r.mean()

Columns: names and choices of the config (`data`, `protocol`, `loss`, `seed` …), `options` (dotted
name → value), `configuration` (equal for runs that differ only in seed, repeats and what was
measured), state and place of the folder, and the scores of test images in percent, before training
as `untrained_<metric>`. A run that is not finished is one row without scores.

Finished runs are sent as one CSV file, a line each: config and summary, which is all that a report
needs, without checkpoints, pictures or images.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from dml.config.identity import digest, refuse_interpolation
from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.metric_names import is_retrieval_metric
from dml.core.statistics import Estimate
from dml.runs.folder.stored_run import Result, State, StoredRun, find_runs, read_run

GROUPS = ("data", "protocol", "loss", "method", "backbone")
NAMES = ("name", "note", "experiment", *GROUPS)
COLUMNS = (
    *("run", "folder", "id", "state", "problem", "age", "size", *NAMES, "setting", "seed"),
    *("epochs", "selected_by", "score", "epoch", "options", "configuration", "evaluation"),
    *("repeat", "result_id", "protocol_id", "dim", "stand_in"),
)
# Options in which runs of one configuration may differ: repetition, and what was measured.
REPEATED = ("seed.", "protocol.repeats.", "evaluation.")
# Options that follow from the names, in columns of their own.
NAMED = (".name", "._target_", ".result_id")
STAND_INS = ("data.stand_in", "data.classes", "data.images_per_class_at_most")
SENT = ("folder", "revision", "device", "config", "summary")  # columns of a file of runs


def load_frame(root: Path) -> pd.DataFrame:
    """Returns the table of all runs below a folder, the newest first.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"runs: there is no folder {root}; {shell_command('train')} writes to outputs/"
        )
    runs = sorted(map(read_run, find_runs(root)), key=lambda run: -run.written)
    return make_frame(runs)


def make_frame(runs: Iterable[StoredRun], timed: bool = False) -> pd.DataFrame:
    """Returns the table of some runs.

    Args:
        runs: in the order of the rows.
        timed: adds `epoch_seconds`, for which the histories are read.
    """
    rows = [row for run in runs for row in _make_rows(run, timed)]
    columns = dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])
    whole = {"seed": "Int64", "epochs": "Int64", "repeat": "Int64", "dim": "Int64"}
    return pd.DataFrame(rows, columns=list(columns)).astype(whole)


def _make_rows(run: StoredRun, timed: bool) -> Iterator[dict[str, Any]]:
    config, summary = run.config, run.summary
    row: dict[str, Any] = {
        "run": run,
        "folder": str(run.folder),
        "id": run.id,
        "state": str(run.state),
        "problem": run.problem,
        "age": max(0.0, time.time() - run.written),
        "size": run.size,
        "options": run.options,
        "configuration": json.dumps(comparable(run.options), sort_keys=True, default=str),
    }
    if config is not None:
        row |= {name: getattr(config, name) or "" for name in (*NAMES, "setting")}
        row |= {"seed": config.seed, "epochs": config.epochs}
        row["selected_by"] = f"{config.select_metric} on {config.selected_on}"
    if config is None or summary is None:
        yield {**row, **_progress(run)}
        return
    row |= {"result_id": summary.result_id, "protocol_id": summary.protocol}
    row |= {"dim": summary.embedding_size, "stand_in": summary.stand_in}
    by_evaluation = {
        summary.evaluation: [(job, _job_numbers(run, job, timed)) for job in summary.jobs]
    }
    if summary.concatenated:
        by_evaluation["concatenated"] = [
            (one, _percent(one.metrics)) for one in summary.concatenated.repeats
        ]
    for evaluation, results in by_evaluation.items():
        for repeat in dict.fromkeys(result.repeat for result, _ in results):
            folds = [numbers for result, numbers in results if result.repeat == repeat]
            means = {
                name: fmean(one[name] for one in folds)
                for name in folds[0]
                if all(name in one for one in folds)
            }
            yield {**row, "evaluation": evaluation, "repeat": repeat, **means}


def _progress(run: StoredRun) -> dict[str, float]:
    """Returns the last epoch of an unfinished run, and its best score so far in percent."""
    if run.config is None or run.state == State.DAMAGED or not run.history:
        return {}
    best: dict[tuple[float, float], float] = {}
    for row in run.history:
        job = (row["repeat"], row["fold"])
        best[job] = max(best.get(job, 0.0), row.get(run.config.select_metric, 0.0))
    return {"epoch": run.history[-1]["epoch"], "score": 100 * fmean(best.values())}


def _job_numbers(run: StoredRun, job: Result, timed: bool) -> dict[str, float]:
    """Returns what tables show of one model: scores in percent, epochs, steps and times."""
    numbers = _percent(job.metrics)
    numbers |= {f"untrained_{name}": value for name, value in _percent(job.untrained).items()}
    more = {"epoch": job.best_epoch, "best_epoch": job.best_epoch, "train_steps": job.best_step}
    if run.config is not None:
        more["score"] = _percent(job.validation).get(run.config.select_metric)
    numbers |= {name: float(value) for name, value in more.items() if value is not None}
    if job.steps and job.seconds:
        numbers["ms_per_batch"] = 1000 * job.seconds / job.steps
        for row in run.history if timed else ():  # the last one counts
            if (row["repeat"], row["fold"]) == (job.repeat, job.fold) and row["epoch"] > 0:
                numbers["epoch_seconds"] = job.seconds / job.steps * row["step"] / row["epoch"]
    return numbers


def _percent(metrics: Mapping[str, float]) -> dict[str, float]:
    return {n: 100 * v if is_retrieval_metric(n) else v for n, v in metrics.items()}


def comparable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a configuration: all but seed, repeats and evaluation."""
    return {n: v for n, v in options.items() if v != {} and not f"{n}.".startswith(REPEATED)}


def one_per_run(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per run, in their order, with the mean scores of its repeats."""
    runs = frame.drop_duplicates("folder").set_index("folder", drop=False)
    scores = [name for name in frame if name in ("score", "epoch") or name not in COLUMNS]
    own = frame[frame.evaluation != "concatenated"]
    runs[scores] = own.groupby("folder", sort=False)[scores].mean()
    return runs


def estimates(rows: pd.DataFrame, metrics: Iterable[str], prefix: str = "") -> dict[str, Estimate]:
    """Returns metric → `<prefix><metric>` over the seeds and repeats of one configuration.

    Metrics that no run has are left out. Of two runs with the same seed, the one with more repeats
    counts.
    """
    longest = rows.groupby("folder").repeat.transform("count")
    ordered = rows.assign(count=-longest).sort_values(["count", "seed", "repeat"], kind="stable")
    ordered = ordered.drop_duplicates(["seed", "repeat"]).sort_values(["seed", "repeat"])
    known = {m: tuple(ordered[prefix + m].dropna()) for m in metrics if prefix + m in ordered}
    return {metric: Estimate(values) for metric, values in known.items() if values}


def estimate(rows: pd.DataFrame, metric: str) -> Estimate | None:
    """Returns the estimate of a metric (see `estimates`); None if no run has it."""
    return estimates(rows, [metric]).get(metric)


def differing_options(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the sorted names of the options that are not equal in all mappings."""
    names = sorted(set().union(*options)) if options else []
    first = options[0] if options else {}
    return [n for n in names if any(one.get(n, "") != first.get(n, "") for one in options)]


def format_option(value: Any) -> str:
    """Returns an option's value as it is typed on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(format_option, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns dotted name → last part of the name, or the whole name if the part is not unique."""
    last = Counter([*(name.rpartition(".")[2] for name in names), *NAMES])
    return {name: leaf if last[leaf := name.rpartition(".")[2]] == 1 else name for name in names}


def option_columns(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Returns title → a text per run, for the names and options in which runs differ.

    Two losses differ in options by their nature: the options are those in which runs with equal
    names differ. Options in which more runs differ come first.
    """
    columns = {
        group: name_texts(runs, group) for group in GROUPS if runs[group].dropna().nunique() > 1
    }
    found: Counter[str] = Counter()
    for _, same in runs[runs.data.notna()].groupby(list(GROUPS), sort=False):
        for name in differing_options([comparable(options) for options in same.options]):
            if not name.endswith(NAMED):
                found[name] += len(same)
    names = sorted(found, key=lambda name: (-found[name], name))
    for name, short in short_names(names).items():
        columns[short] = [format_option(one[name]) if name in one else "" for one in runs.options]
    return columns


def name_texts(runs: pd.DataFrame, group: str) -> list[str]:
    """Returns the names of the runs' data, loss …; stand-in data are marked."""
    marks = [
        " (stand-in)" if group == "data" and any(map(one.get, STAND_INS)) else ""
        for one in runs.options
    ]
    return [f"{name}{mark}" for name, mark in zip(runs[group].fillna(""), marks, strict=True)]


def common_names(runs: pd.DataFrame) -> str:
    """Returns the names that all runs share: `cub, mlrc, plain, bn_inception`.

    A name that all were given with `name=` comes first, in quotation marks.
    """
    known = runs[runs.data.notna()]
    shared = [name_texts(known, name)[0] for name in GROUPS if known[name].nunique() == 1]
    given = known["name"].unique()
    return ", ".join([*([f'"{given[0]}"'] if len(given) == 1 and given[0] else []), *shared])


def write_runs(runs: Iterable[StoredRun]) -> str:
    """Returns the finished ones of some runs as CSV, a line each."""
    lines = []
    for run in {run.folder: run for run in runs}.values():
        if (summary := run.summary) is not None:
            data = {**run.content["data"], "root": "data"}  # places of the sender's machine
            config = json.dumps({**run.content, "outputs": "outputs", "data": data}, default=str)
            folder = "/".join(run.folder.parts[-3:])
            text = summary.model_dump_json(exclude_unset=True)
            lines.append((folder, summary.git_revision, summary.device, config, text))
    return pd.DataFrame(lines, columns=SENT).to_csv(index=False)


def read_runs(path: Path) -> list[StoredRun]:
    """Returns the runs of a CSV file.

    Raises:
        UserError: the file is not one of `write_runs`, a score is no possible one, or a config does
            not belong to its folder: its identity is the end of the folder's name.
    """
    runs: list[StoredRun] = []
    try:
        lines = pd.read_csv(path, dtype=str, keep_default_na=False)
        for folder, config, summary in lines.reindex(columns=[SENT[0], *SENT[3:]]).to_numpy():
            runs.append(_read_sent_run(str(folder), config, summary))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}, run {len(runs) + 1}: {first_line(error)}") from error
    if not runs:
        raise UserError(f"{path} contains no runs; report.py writes such files as <id>_runs.csv")
    return runs


def _read_sent_run(folder: str, config: str, summary: str) -> StoredRun:
    parts = PurePosixPath(folder).parts
    if len(parts) != 3 or not set(parts).isdisjoint({"..", "/"}):
        raise ValueError(f"'{folder}' is not <experiment>/<names>/<run>")
    content = json.loads(config)
    refuse_interpolation(content)
    run = StoredRun(Path(*parts))
    run.parse(content)
    run.parse_summary(json.loads(summary))
    found = digest(OmegaConf.create(content))
    if run.id != found:
        raise ValueError(f"the config has the identity {found}, its folder another: {parts[-1]}")
    return run
