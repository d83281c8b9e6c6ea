"""All runs, local and contributed, as one table with a row per evaluation and repeat.

    frame = load_frame(Path("outputs"))
    frame.query("data == 'cub' and state == 'finished'").groupby("loss").map_at_r.mean()

Columns hold texts, numbers and booleans: names and choices of the config (`data`, `protocol`,
`loss`, `seed` …), `configuration` (equal for runs that differ only in seed, repeats and what was
measured), state and path of the folder, and the scores of test images in percent, before training
as `untrained_<metric>`. A run that is not finished is one row with no other test scores. `Runs`
joins the table with all options, the history and the summary of each run.

Finished runs are sent as one CSV file, a line each: the summary with the config, which is all that
a report needs, without checkpoints, pictures or images.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from dml.core.csv_cells import unquote_formula, write_csv
from dml.core.errors import UserError, first_line
from dml.core.installation import shell_command
from dml.core.metric_names import is_score, select_columns
from dml.core.option_values import has_seen_classes
from dml.core.regular_files import open_regular
from dml.core.secrets import mask_options
from dml.core.statistics import Estimate
from dml.core.text_columns import plain_text_columns
from dml.results.contributed_runs import check_scores, find_equal_repeats, without_folders
from dml.runs.folder.stored_run import Result, State, StoredRun, find_runs, read_run

log = logging.getLogger(__name__)

GROUPS = ("data", "protocol", "loss", "method", "backbone")
NAMES = ("name", "note", "experiment", *GROUPS)
OF_FOLDER = ("folder", "id", "state", "problem", "age", "size")
OF_CONFIG = ("setting", "seed", "epochs", "selected_by", "images")
OF_TRAINING = ("score", "epoch", "configuration")
OF_RESULT = ("evaluation", "repeat", "result_id", "protocol_id", "dim", "stand_in")
COLUMNS = OF_FOLDER + NAMES + OF_CONFIG + OF_TRAINING + OF_RESULT
INTEGERS = ("seed", "epochs", "repeat", "dim")
# Options in which runs of one configuration may differ: repetition, and what was measured.
REPEATED = ("seed.", "protocol.repeats.", "evaluation.")
# Ends of options that follow from the choices in `GROUPS`, which have columns.
NAMED = (".name", "._target_", ".result_id")
# Options whose values depend on loss and method by default.
OF_LOSS = (
    "loss.",
    "method.",
    "space.",
    "optim.loss_lr",
    "data.sampler",
    "data.images_per_class",
    "data.categories_per_batch",
    "code.",
)
# Options that decide which images a run has, but for those of its batches.
OF_IMAGES = (
    "data.",
    "protocol.splits.",
    "protocol.split_seed.",
    "protocol.test_share.",
    "protocol.validation_share.",
)
OF_BATCHES = (
    "data.batch_size.",
    "data.eval_batch_size.",
    "data.sampler.",
    "data.images_per_class.",
    "data.categories_per_batch.",
    "data.label_noise.",
)
IMAGES = "images"  # an option of runs on different images with equal options
SEEN = " (seen classes)"  # mark of a protocol that tests the classes of the training
STAND_INS = ("data.stand_in", "data.classes", "data.images_per_class_at_most")
SENT = ["folder", "summary"]  # columns of a file of runs


@dataclass(frozen=True, eq=False)
class Runs:
    """A table of runs together with what is stored of them.

    Attributes:
        table: of `make_frame` or `one_per_run`, or some of its rows.
        stored: run by the column `folder`; also of runs without a row in the table.
    """

    table: pd.DataFrame
    stored: Mapping[str, StoredRun]

    def select(self, rows: pd.DataFrame) -> Runs:
        """Returns the same runs with other rows as their table."""
        return replace(self, table=rows)

    @property
    def by_row(self) -> list[StoredRun]:
        """The run of each row."""
        return [self.stored[folder] for folder in self.table.folder]

    @property
    def distinct(self) -> list[StoredRun]:
        """The runs of all rows, each once, in the order of the table."""
        return self.select(self.table.drop_duplicates("folder")).by_row

    @property
    def custom_metrics(self) -> list[str]:
        """The columns of the metrics that users have added (`evaluation.metrics`)."""
        names: set[str] = set()
        for run in self.distinct:
            for option in run.options:
                if option.startswith("evaluation.metrics."):
                    names.add(option.split(".")[2])
        return select_columns(self.table, names)

    @property
    def options(self) -> list[dict[str, Any]]:
        """The options of each row's run that decide its result: dotted name → value."""
        return [run.options for run in self.by_row]


def load_runs(root: Path) -> Runs:
    """Returns all runs below a folder, the newest first.

    Raises:
        UserError: there is no such folder.
    """
    if not root.is_dir():
        raise UserError(
            f"runs: there is no folder {root}; {shell_command('train')} writes to outputs/"
        )
    stored = [read_run(folder) for folder in find_runs(root)]
    stored.sort(key=attrgetter("written"), reverse=True)
    return make_runs(stored)


def load_frame(root: Path) -> pd.DataFrame:
    """Returns the table of `load_runs`."""
    return load_runs(root).table


def make_runs(stored: Iterable[StoredRun]) -> Runs:
    """Returns some runs with their table, in their order.

    Where equal options have led to different images, as in a folder that has changed meanwhile,
    `images` is among the options of these runs: they are not repeats of one configuration.
    """
    by_folder = {str(run.folder): run for run in stored}
    for folder in _find_changed_images(by_folder):
        run = by_folder[folder]
        by_folder[folder] = replace(run, options={**run.options, IMAGES: run.images})
    return Runs(make_frame(by_folder.values()), by_folder)


def _find_changed_images(runs: Mapping[str, StoredRun]) -> list[str]:
    """Returns the folders of runs on other images than a run with the same options of images."""
    folders_of: dict[str, list[str]] = {}
    for folder, run in runs.items():
        if run.images is not None:
            folders_of.setdefault(_options_of_images(run), []).append(folder)
    changed: list[str] = []
    for folders in folders_of.values():
        different = {runs[folder].images for folder in folders}
        if len(different) > 1:
            changed += folders
    return changed


def _options_of_images(run: StoredRun) -> str:
    """Returns the options that decide on which images a run trains and is tested, as one text."""
    deciding = {}
    for name, value in run.options.items():
        dotted = f"{name}."
        if dotted.startswith(OF_IMAGES) and not dotted.startswith(OF_BATCHES):
            deciding[name] = value
    return json.dumps(deciding, sort_keys=True, default=str)


def join_runs(parts: Iterable[Runs]) -> Runs:
    """Returns the rows of several tables as one."""
    tables: list[pd.DataFrame] = []
    stored: dict[str, StoredRun] = {}
    for part in parts:
        tables.append(part.table)
        stored.update(part.stored)
    return Runs(pd.concat(tables), stored)


@plain_text_columns()
def make_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Returns the table of some runs, in their order."""
    rows: list[dict[str, Any]] = []
    columns = dict.fromkeys(COLUMNS)
    for run in runs:
        for row in _make_rows(run):
            rows.append(row)
            columns |= dict.fromkeys(row)
    integers = dict.fromkeys(INTEGERS, "Int64")
    return pd.DataFrame(rows, columns=list(columns)).astype(integers)


def _make_rows(run: StoredRun) -> Iterator[dict[str, Any]]:
    """Yields a row per evaluation and repeat; of an unfinished run a single row."""
    row = _describe_run(run)
    config, summary = run.config, run.summary
    if config is None or summary is None:
        yield row | _progress(run)
        return
    row |= {
        "result_id": summary.result_id,
        "protocol_id": summary.protocol,
        "dim": summary.embedding_size,
        "stand_in": summary.stand_in,
    }
    evaluations = {summary.evaluation: summary.jobs}
    if summary.concatenated:
        evaluations["concatenated"] = summary.concatenated.repeats
    for evaluation, results in evaluations.items():
        repeats: dict[int, list[dict[str, float]]] = {}
        for result in results:
            numbers = _numbers(result, config.select_metric)
            repeats.setdefault(result.repeat, []).append(numbers)
        for repeat, folds in repeats.items():
            yield {**row, "evaluation": evaluation, "repeat": repeat, **_mean_numbers(folds)}


def _describe_run(run: StoredRun) -> dict[str, Any]:
    """Returns the columns that do not depend on the results of a run."""
    row: dict[str, Any] = {
        "folder": str(run.folder),
        "id": run.id,
        "state": str(run.state),
        "problem": run.problem,
        "age": max(0.0, time.time() - run.written),
        "size": run.size,
        "configuration": json.dumps(comparable(run.options), sort_keys=True, default=str),
    }
    config = run.config
    if config is None:
        return row
    for name in (*NAMES, "setting"):
        row[name] = getattr(config, name) or ""
    row["seed"] = config.seed
    row["epochs"] = config.epochs
    row["selected_by"] = f"{config.select_metric} on {config.selected_on}"
    row[IMAGES] = run.options.get(IMAGES, "")
    return row


def _progress(run: StoredRun) -> dict[str, float]:
    """Returns the last epoch of an unfinished run, its best score so far, and `untrained_…` scores.

    Scores are in percent. Those before training are known where test images select the epoch.
    """
    if run.config is None or run.state == State.DAMAGED or not run.history:
        return {}
    best: dict[tuple[float, float], float] = {}
    metric = run.config.select_metric
    for row in run.history:
        job = (row["repeat"], row["fold"])
        if metric in row:
            best[job] = max(best.get(job, row[metric]), row[metric])
    progress = {"epoch": run.history[-1]["epoch"]}
    if best:
        progress["score"] = fmean(best.values()) * (100 if is_score(metric) else 1)
    if run.config.selected_on == "test":
        progress |= _untrained(run.history)
    return progress


def _untrained(history: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the scores before training: means over the models that were evaluated then."""
    before = [row for row in history if row["epoch"] == 0]
    if not before:
        return {}
    untrained = {}
    for name, value in _percent(_mean_numbers(before)).items():
        if is_score(name):
            untrained[f"untrained_{name}"] = value
    return untrained


def _mean_numbers(folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the means over folds of the numbers that all of them have."""
    means = {}
    for name in folds[0]:
        values = [numbers[name] for numbers in folds if name in numbers]
        if len(values) == len(folds):
            means[name] = fmean(values)
    return means


def _numbers(result: Result, select_metric: str) -> dict[str, float]:
    """Returns the numbers of one model in tables: scores in percent, epochs, steps and times."""
    numbers = _percent(result.metrics)
    for name, value in _percent(result.untrained).items():
        numbers[f"untrained_{name}"] = value
    epoch, step = result.best_epoch, result.best_step
    score = _percent(result.selecting).get(select_metric)
    optional = {"epoch": epoch, "best_epoch": epoch, "train_steps": step, "score": score}
    for name, number in optional.items():
        if number is not None:
            numbers[name] = float(number)
    if result.steps and result.seconds:
        numbers["ms_per_batch"] = 1000 * result.seconds / result.steps
        if epoch and step:
            numbers["epoch_seconds"] = result.seconds / result.steps * step / epoch
    return numbers


def _percent(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns scores in percent and other measures as they are; names in `COLUMNS` are left out."""
    numbers = {}
    for name, value in metrics.items():
        if name not in COLUMNS:
            numbers[name] = 100 * value if is_score(name) else value
    return numbers


def comparable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a configuration: all but seed, repeats and evaluation."""
    kept = {}
    for name, value in options.items():
        if value != {} and not f"{name}.".startswith(REPEATED):
            kept[name] = value
    return kept


def one_per_run(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per run, in their order, with the mean scores of its repeats."""
    runs = frame.drop_duplicates("folder").set_index("folder", drop=False)
    described = set(COLUMNS) - {"score", "epoch"}
    scores = [name for name in frame if name not in described]
    of_models = frame[frame.evaluation != "concatenated"]
    runs[scores] = of_models.groupby("folder", sort=False)[scores].mean()
    return runs


def estimates(rows: pd.DataFrame, metrics: Iterable[str], prefix: str = "") -> dict[str, Estimate]:
    """Returns metric → `<prefix><metric>` over the seeds and repeats of one configuration.

    Metrics that no run has are left out. Of two runs with the same seed, the one with more repeats
    counts.
    """
    by_metric = {}
    longest = rows.groupby("folder").repeat.transform("count")
    ordered = rows.iloc[(-longest).argsort(kind="stable")]
    ordered = ordered.drop_duplicates(["seed", "repeat"]).sort_values(["seed", "repeat"])
    for metric in metrics:
        if prefix + metric in ordered:
            values = tuple(ordered[prefix + metric].dropna())
            if values:
                by_metric[metric] = Estimate(values)
    return by_metric


def estimate(rows: pd.DataFrame, metric: str) -> Estimate | None:
    """Returns the estimate of a metric (see `estimates`); None if no run has it."""
    return estimates(rows, [metric]).get(metric)


def differing_options(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the sorted names of the options that are not equal in all mappings."""
    names: set[str] = set()
    for mapping in options:
        names.update(mapping)
    return [name for name in sorted(names) if _differs(name, options)]


def _differs(name: str, options: Sequence[Mapping[str, Any]]) -> bool:
    first = options[0].get(name, "")
    return any(mapping.get(name, "") != first for mapping in options)


def describe_differences(options: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, str]:
    """Returns name → `<name>=<value> instead of <value>` of the options that differ."""
    texts = {}
    for name in differing_options([options, expected]):
        value, usual = format_option(options.get(name)), format_option(expected.get(name))
        texts[name] = f"{name}={value} instead of {usual}"
    return texts


def format_option(value: Any) -> str:
    """Returns an option's value as it is typed on the command line."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), default=str).replace('"', "")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns dotted name → last part of the name, or the whole name if the part is not unique."""
    last_parts = {name: name.rpartition(".")[2] for name in names}
    counts = Counter(NAMES)
    counts.update(last_parts.values())
    for name, part in last_parts.items():
        if counts[part] > 1:
            last_parts[name] = name
    return last_parts


def join_some(texts: Sequence[str], limit: int = 4) -> str:
    """Returns texts joined by commas: the first `limit`, and the number of the others."""
    joined = ", ".join(texts[:limit])
    if len(texts) > limit:
        joined += f" and {len(texts) - limit} more"
    return joined


def varied_options(runs: Runs) -> list[str]:
    """Returns the dotted names of the options in which runs differ, first those of many runs.

    Each dataset, network, protocol, loss and method has options that others lack. So options of
    losses and methods are compared between runs with the same names in `GROUPS`, and all others
    between runs with the same data, protocol and network. Of options with equal values in all runs,
    such as two paths of a dataset, the first counts.
    """
    is_known = runs.table.data.notna()
    known = runs.select(runs.table[is_known].drop_duplicates("configuration"))
    counts: Counter[str] = Counter()
    for groups in (GROUPS, ("data", "protocol", "backbone")):
        for _, rows in known.table.groupby(list(groups), sort=False):
            options = [comparable(mapping) for mapping in known.select(rows).options]
            for name in differing_options(options):
                is_of_loss = name.startswith(OF_LOSS)
                if is_of_loss == (groups == GROUPS) and not name.endswith(NAMED):
                    counts[name] += len(rows)
    names = sorted(counts)
    names.sort(key=counts.__getitem__, reverse=True)
    first: dict[str, str] = {}  # text of the values of all runs: name
    for name in names:
        values = [mapping.get(name) for mapping in known.options]
        first.setdefault(str(values), name)
    return list(first.values())


def option_columns(runs: Runs) -> dict[str, list[str]]:
    """Returns title → a text per row, for the names and options in which runs differ."""
    columns = {}
    for name in GROUPS:
        if runs.table[name].nunique() > 1:
            columns[name] = name_texts(runs, name)
    for name, short in short_names(varied_options(runs)).items():
        columns[short] = [_option_text(options, name) for options in runs.options]
    return columns


def _option_text(options: Mapping[str, Any], name: str) -> str:
    return format_option(options[name]) if name in options else ""


def name_texts(runs: Runs, group: str) -> list[str]:
    """Returns the name of each row's data, loss …; stand-in data and closed sets are marked."""
    texts = []
    for name, options in zip(runs.table[group].fillna(""), runs.options, strict=True):
        mark = ""
        if group == "data" and any(map(options.get, STAND_INS)):
            mark = " (stand-in)"
        if group == "protocol" and has_seen_classes(options.get("protocol.splits")):
            mark = SEEN
        texts.append(f"{name}{mark}")
    return texts


def common_names(runs: Runs) -> str:
    """Returns the names that all runs share: `cub, mlrc, plain, bn_inception`.

    The name of `name=` comes first, in quotation marks, if all runs have the same.
    """
    known = runs.table[runs.table.data.notna()]
    shared = []
    titles = known["name"].unique()
    if len(titles) == 1 and titles[0]:
        shared.append(f'"{titles[0]}"')
    for group in GROUPS:
        if known[group].nunique() == 1:
            shared.append(name_texts(runs.select(known.head(1)), group)[0])
    return ", ".join(shared)


def write_runs(runs: Iterable[StoredRun]) -> str:
    """Returns the runs that are finished as CSV, a line each."""
    by_folder = {run.folder: run for run in runs}
    lines = []
    for run in by_folder.values():
        if run.summary is None:
            continue
        data = {**run.content["data"], "root": "data"}
        config = without_folders({**run.content, "outputs": "outputs", "data": data})
        summary = {**run.summary.model_dump(exclude_unset=True), "config": config}
        text = json.dumps(mask_options(summary), default=str)
        lines.append(("/".join(run.folder.parts[-3:]), text))
    return write_csv(pd.DataFrame(lines, columns=SENT))


def read_runs(path: Path) -> list[StoredRun]:
    """Returns the runs of a CSV file; a config is data, whose `${…}` are never resolved.

    Raises:
        UserError: `write_runs` has not written the file, or its scores cannot be right.
    """
    runs = list[StoredRun]()
    try:
        with open_regular(path) as file:
            table = pd.read_csv(file, dtype=str, usecols=SENT)
        for folder, summary in table[SENT].to_numpy():
            run = StoredRun(Path(unquote_formula(folder)))
            run.parse_summary(json.loads(unquote_formula(summary)))
            _check_scores(run, f"{path}, run {len(runs) + 1}")
            runs.append(run)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read, run {len(runs) + 1}: {first_line(error)}"
        ) from error
    return runs


def _check_scores(run: StoredRun, name: str) -> None:
    """Checks the scores of a finished run that was sent; a note names repeats with equal scores.

    Raises:
        ValueError: see `check_scores`.
    """
    if run.summary is None:
        return
    check_scores(run.summary)
    for first, second in find_equal_repeats(run.summary.jobs):
        log.warning(
            "note: %s: repeats %d and %d have equal scores; did each have a seed of its own?",
            *(name, first, second),
        )
