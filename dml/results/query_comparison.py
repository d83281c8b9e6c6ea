"""Two runs, or files of embeddings, compared query by query: a table, its limits, a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.text import Text
from torch import Tensor

from dml.core.counts import count_of
from dml.core.errors import UserError, describe_failure
from dml.core.metric_names import metric_label
from dml.core.progress import open_display, show_task
from dml.core.statistics import ClusteredMean
from dml.results.tables import Column, Table, terminal_table
from dml.retrieval.embeddings import load_embeddings
from dml.retrieval.paired_queries import (
    FEW_CLASSES,
    USUAL,
    PairedQueries,
    RankedQueries,
    check_metrics,
    pair_queries,
    rank_queries,
)
from dml.retrieval.vector_lengths import describe_lengths
from dml.runs.console import console
from dml.runs.error_files import read_stored_images
from dml.runs.error_page import ShownImages
from dml.runs.figures.drawing import check_picture
from dml.runs.figures.query_differences import draw_differences
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import StoredRun
from dml.runs.kept_embeddings import (
    keep_test_embeddings,
    list_test_embeddings,
    load_test_images,
)
from dml.runs.resource_errors import translate_resource_errors
from dml.training.device import resolve_device

BY_CLASSES = (
    "95 % interval over {} classes; it does not cover training: another seed may differ more"
)
FEW = f"fewer than {FEW_CLASSES} classes: the interval is unreliable"
LoadImages = Callable[[], tuple[ShownImages, ShownImages, Sequence[str]]]


@dataclass(frozen=True)
class Source:
    """What is compared: a run, or a file of embeddings.

    Attributes:
        title: id of the run, or name of the file.
        check: raises UserError for a run that cannot be compared, before anything is computed.
        find_files: returns the files of the embeddings of each model, which it may compute.
        load_images: returns queries, gallery and names of classes.
        folds: number of models of each repeat.
        fingerprint: of the dataset of a run, if it is known.
        is_file: whether it is a file of embeddings.
    """

    title: str
    check: Callable[[], object]
    find_files: Callable[[], list[Path]]
    load_images: LoadImages
    folds: int = 1
    fingerprint: str | None = None
    is_file: bool = False

    @classmethod
    def of_run(cls, run: StoredRun) -> Source:
        """Returns the source of a run in any state."""
        jobs = run.summary.jobs if run.summary is not None else []
        folds = {job.fold for job in jobs}
        return cls(
            run.id,
            partial(list_test_embeddings, run),
            partial(keep_test_embeddings, run),
            partial(load_test_images, run),
            max(1, len(folds)),
            RunFolder(run.folder).fingerprint(),
        )

    @classmethod
    def of_file(cls, path: Path) -> Source:
        """Returns the source of a file of embeddings."""

        def load_images() -> tuple[ShownImages, ShownImages, Sequence[str]]:
            return read_stored_images(path, load_embeddings(path, resolve_device("cpu")))

        return cls(str(path), lambda: None, lambda: [path], load_images, is_file=True)


def compare_queries(
    first: Source, second: Source, metrics: Sequence[str], picture: Path, width: int
) -> list[Text]:
    """Returns the table of two sources on the same queries, and draws the largest differences.

    Args:
        first, second: of the same test images, in any order.
        metrics: to compare in addition to `USUAL`.
        picture: path of the PNG.
        width: characters of the terminal.

    Raises:
        UserError: they are not of the same images and classes, an embedding is missing and cannot
            be computed, or a metric is no score of each query.
    """
    check_metrics(metrics)
    first.check()
    second.check()
    if first.folds != second.folds:
        raise UserError(
            f"compare: {first.title} has {count_of(first.folds, 'model')} a repeat, {second.title} "
            f"{second.folds}; test_embeddings.npz of a single model can be compared as a file"
        )
    names = tuple(dict.fromkeys([*USUAL, *metrics]))
    with open_display(console), translate_resource_errors():
        files = [first.find_files(), second.find_files()]
        ranked = []
        for source, of_source in zip((first, second), files, strict=True):
            with show_task(f"scoring each query of {source.title}"):
                device = resolve_device("auto")
                ranked.append(rank_queries(source.title, of_source, names, device))
        _check_numbered(first, second, ranked[0])
        pairs = pair_queries(*ranked)
        shown = [_score_table(pairs, names, width), Text()]
        shown += map(Text, _explain(pairs, [len(of_source) for of_source in files]))
        shown += map(Text, _describe_lengths([first, second], ranked))
        return shown + _draw(pairs, first.load_images, picture)


def _check_numbered(first: Source, second: Source, ranked: RankedQueries) -> None:
    """Raises UserError for images that only their numbers name, of datasets that differ."""
    is_numbered = all(name.isdecimal() for name in ranked.names)
    prints = {first.fingerprint, second.fingerprint} - {None}
    if is_numbered and len(prints) > 1:
        raise UserError(
            f"compare: {first.title} and {second.title} are of other images, which have no paths "
            f"by which they could be the same"
        )


def _score_table(pairs: PairedQueries, metrics: Sequence[str], width: int) -> Text:
    """Returns the table of the metrics, with differences and numbers of queries."""
    rows = []
    for metric in metrics:
        score = pairs.summarize(metric)
        rows.append(
            (
                metric_label(metric),
                f"{100 * score.first:.2f}",
                f"{100 * score.second:.2f}",
                f"{100 * score.difference.mean:+.2f}",
                _interval_text(score.difference),
                str(score.won),
                str(score.lost),
                str(score.tied),
            )
        )
    titles = (
        "query by query, %",
        pairs.first.title,
        pairs.second.title,
        "difference",
        "95 % interval",
        "won",
        "lost",
        "tied",
    )
    columns = []
    for title, cells in zip(titles, zip(*rows, strict=True), strict=True):
        columns.append(Column(title, cells, right=title != titles[0]))
    return terminal_table(Table("", columns), width)


def _interval_text(difference: ClusteredMean) -> str:
    if difference.half_width is None:
        return "none: 1 class"
    low = difference.mean - difference.half_width
    high = difference.mean + difference.half_width
    return f"{100 * low:+.2f} to {100 * high:+.2f}"


def _explain(pairs: PairedQueries, models: Sequence[int]) -> list[str]:
    """Returns what the numbers mean, and their limits."""
    classes = pairs.summarize(USUAL[0]).difference.clusters
    lines = [f"won: {pairs.second.title} has the higher score of the query"]
    if max(models) > 1:
        lines.append(f"scores of a query: means of {models[0]} and {models[1]} models")
    lines.append(BY_CLASSES.format(classes))
    if classes < FEW_CLASSES:
        lines.append(FEW)
    return lines


def _describe_lengths(sources: Sequence[Source], ranked: Sequence[RankedQueries]) -> list[str]:
    """Returns a note for each file whose lengths of embeddings differ; a run chose its distance."""
    lines = []
    for source, queries in zip(sources, ranked, strict=True):
        note = describe_lengths(*queries.lengths)
        if source.is_file and note:
            lines.append(f"{source.title}: {note}")
    return list(dict.fromkeys(lines))  # once of a file beside itself


def _draw(pairs: PairedQueries, load_images: LoadImages, path: Path) -> list[Text]:
    """Draws the picture; returns the line that names it, or says why there is none."""
    metric = USUAL[-1]
    if not len(pairs.rank_differences(metric)):
        return [Text("no picture: no query differs")]
    try:
        origin = f"queries {pairs.first.title} {pairs.second.title}"
        check_picture(path, "queries", origin=origin)
        queries, gallery, class_names = load_images()
        if queries.load is None or gallery.load is None:
            return [Text("no picture: the files of the images are not there")]
        load = partial(_load_image, queries, gallery)
        name = partial(_class_name, pairs.first, class_names)
        with show_task("drawing the largest differences"):
            draw_differences(pairs, load, name, path, origin, metric)
    except Exception as error:  # no picture is worth the table
        return [Text(f"note: no picture: {describe_failure(error)}")]
    return [Text(f"queries     {path}")]


def _load_image(queries: ShownImages, gallery: ShownImages, position: int) -> Tensor:
    """Returns the image at a position in the names of queries, followed by those of the gallery."""
    is_query = position < len(queries.names)
    shown, row = (queries, position) if is_query else (gallery, position - len(queries.names))
    assert shown.load is not None
    return shown.load(row)


def _class_name(ranked: RankedQueries, class_names: Sequence[str], position: int) -> str:
    """Returns the name of an image's class: a run stores numbers of the classes of its dataset."""
    name = ranked.class_name(position)
    if name.isdecimal() and int(name) < len(class_names):
        return class_names[int(name)]
    return name
