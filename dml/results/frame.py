"""All runs, local and contributed, as one table with a row per evaluation and repeat.

    frame = load_frame(Path("outputs"))
    frame.query("data == 'cub' and state == 'finished'").groupby("loss").map_at_r.mean()

Columns: names and choices of the config (`data`, `protocol`, `loss`, `seed` …), `options` (dotted
name → value), `configuration` (equal for runs that differ only in seed, repeats and what was
measured), state and place of the folder, and the scores of test images in percent, before training
as `untrained_<metric>`. A run that is not finished is one row without scores.

Finished runs are sent as one CSV file, a line each: the summary with the config, which is all that
a report needs, without checkpoints, pictures or images.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from dml.core.csv_cells import unquote_formula, write_csv
from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.metric_names import is_score
from dml.core.regular_files import open_regular
from dml.core.secrets import mask_options
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
# Options whose values depend on loss and method by default.
OF_LOSS = (
    *("loss.", "method.", "space.", "optim.loss_lr", "data.sampler", "data.images_per_class"),
    "code.",
)
STAND_INS = ("data.stand_in", "data.classes", "data.images_per_class_at_most")
SENT = ("folder", "summary")  # columns of a file of runs


def load_frame(root: Path) -> pd.DataFrame:
    """Returns the table of all runs below a folder, the newest first.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"runs: there is no folder {root}; {shell_command('train')} writes to outputs/"
        )
    return make_frame(sorted(map(read_run, find_runs(root)), key=lambda run: -run.written))


def make_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Returns the table of some runs, in their order."""
    rows = [row for run in runs for row in _make_rows(run)]
    columns = dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])
    whole = {"seed": "Int64", "epochs": "Int64", "repeat": "Int64", "dim": "Int64"}
    return pd.DataFrame(rows, columns=list(columns)).astype(whole)


def _make_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
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
    results = {summary.evaluation: summary.jobs}
    if summary.concatenated:
        results["concatenated"] = summary.concatenated.repeats
    for evaluation, some in results.items():
        for repeat in dict.fromkeys(one.repeat for one in some):
            folds = [_numbers(one, config.select_metric) for one in some if one.repeat == repeat]
            names = [name for name in folds[0] if all(name in one for one in folds)]
            means = {name: fmean(one[name] for one in folds) for name in names}
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


def _numbers(result: Result, select_metric: str) -> dict[str, float]:
    """Returns the numbers of one model in tables: scores in percent, epochs, steps and times."""
    numbers = _percent(result.metrics)
    numbers |= {f"untrained_{name}": value for name, value in _percent(result.untrained).items()}
    epoch, step = result.best_epoch, result.best_step
    more = {"epoch": epoch, "best_epoch": epoch, "train_steps": step}
    more["score"] = _percent(result.selecting).get(select_metric)
    numbers |= {name: float(value) for name, value in more.items() if value is not None}
    if result.steps and result.seconds:
        numbers["ms_per_batch"] = 1000 * result.seconds / result.steps
        if epoch and step:
            numbers["epoch_seconds"] = result.seconds / result.steps * step / epoch
    return numbers


def _percent(metrics: Mapping[str, float]) -> dict[str, float]:
    return {n: 100 * v if is_score(n) else v for n, v in metrics.items() if n not in COLUMNS}


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
    columns = {metric: prefix + metric for metric in metrics if prefix + metric in rows}
    longest = rows.groupby("folder").repeat.transform("count")
    ordered = rows[["seed", "repeat", *columns.values()]].iloc[(-longest).argsort(kind="stable")]
    ordered = ordered.drop_duplicates(["seed", "repeat"]).sort_values(["seed", "repeat"])
    known = {metric: tuple(ordered[name].dropna()) for metric, name in columns.items()}
    return {metric: Estimate(values) for metric, values in known.items() if values}


def estimate(rows: pd.DataFrame, metric: str) -> Estimate | None:
    """Returns the estimate of a metric (see `estimates`); None if no run has it."""
    return estimates(rows, [metric]).get(metric)


def differing_options(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the sorted names of the options that are not equal in all mappings."""
    names = sorted(set().union(*options))
    return [n for n in names if any(one.get(n, "") != options[0].get(n, "") for one in options)]


def format_option(value: Any) -> str:
    """Returns an option's value as it is typed on the command line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), default=str).replace('"', "")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns dotted name → last part of the name, or the whole name if the part is not unique."""
    last = Counter([*(name.rpartition(".")[2] for name in names), *NAMES])
    return {name: leaf if last[leaf := name.rpartition(".")[2]] == 1 else name for name in names}


def join_some(texts: Sequence[str], limit: int = 4) -> str:
    """Returns texts joined by commas; of many, the first ones and the number of the others."""
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def varied_options(runs: pd.DataFrame) -> list[str]:
    """Returns the dotted names of the options in which runs differ, first those of many runs.

    Data, networks and protocols differ in options by their nature, and losses and methods in those
    of their own: an option counts if it differs between runs for which these names are equal. Of
    options with equal values in all runs, such as two paths of one dataset, the first counts.
    """
    found: Counter[str] = Counter()
    known = runs[runs.data.notna()].drop_duplicates("configuration")
    for groups in (GROUPS, ("data", "protocol", "backbone")):
        for _, same in known.groupby(list(groups), sort=False):
            for name in differing_options([comparable(one) for one in same.options]):
                if name.startswith(OF_LOSS) == (groups == GROUPS) and not name.endswith(NAMED):
                    found[name] += len(same)
    names = sorted(found, key=lambda name: (-found[name], name))
    values = {name: str([one.get(name) for one in known.options]) for name in names}
    first = {text: name for name, text in reversed(values.items())}
    return [name for name in names if first[values[name]] == name]


def option_columns(runs: pd.DataFrame) -> dict[str, list[str]]:
    """Returns title → a text per run, for the names and options in which runs differ."""
    columns = {name: name_texts(runs, name) for name in GROUPS if runs[name].nunique() > 1}
    for name, short in short_names(varied_options(runs)).items():
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
        if run.summary is not None:
            data = {**run.content["data"], "root": "data"}  # places of the sender's machine
            config = {**run.content, "outputs": "outputs", "data": data}
            summary = {**run.summary.model_dump(exclude_unset=True), "config": config}
            lines.append(
                ("/".join(run.folder.parts[-3:]), json.dumps(mask_options(summary), default=str))
            )
    return write_csv(pd.DataFrame(lines, columns=SENT))


def read_runs(path: Path) -> list[StoredRun]:
    """Returns the runs of a CSV file; a config is data, whose `${…}` are never resolved.

    Raises:
        UserError: the file is not one of `write_runs`.
    """
    runs = []
    try:
        with open_regular(path) as file:
            table = pd.read_csv(file, dtype=str, usecols=[*SENT])
        for folder, summary in table[[*SENT]].to_numpy():
            run = StoredRun(Path(unquote_formula(folder)))
            run.parse_summary(json.loads(unquote_formula(summary)))
            runs.append(run)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read, run {len(runs) + 1}: {first_line(error)}"
        ) from error
    return runs
