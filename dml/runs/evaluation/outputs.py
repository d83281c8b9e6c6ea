"""The files of an evaluation: where they are, and whether they may be written."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from dml.config.schema import Config, EvaluateConfig
from dml.core.atomic_io import check_writable
from dml.core.names import named_folder
from dml.core.outputs import check_output, is_picture_of
from dml.core.regular_files import read_regular_text
from dml.data.image_index import hash_text
from dml.methods.extra_metrics import false_match_rates
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.console import print_line
from dml.runs.drawing_guard import attempt
from dml.runs.error_files import ErrorFiles
from dml.runs.evaluation.measures import MEASURES
from dml.runs.figures.match_errors import MATCH_ERRORS, draw_match_errors, thresholds_of
from dml.runs.folder.stored_run import is_run

EVALUATIONS = "evaluations"  # folder below outputs/
ELSEWHERE = "outputs=<folder> puts the scores elsewhere"


@dataclass(frozen=True)
class EvaluationOutputs:
    """The files of an evaluation, which may be written.

    Attributes:
        name: of what is evaluated.
        source: its images or embeddings (`name_place`); empty: those that the name tells.
        origin: name and source, by which earlier files of the same are known.
        scores, curve: paths of the scores and of the picture of verification.
        errors: pages and tables of the queries.
    """

    name: str
    source: str
    origin: str
    scores: Path
    curve: Path
    errors: ErrorFiles

    @classmethod
    def check(
        cls,
        config: EvaluateConfig,
        folder: Path,
        name: str,
        measures: Collection[str],
        prefix: str = "",
        source: str = "",
    ) -> EvaluationOutputs:
        """Returns the files that a command asks for.

        Args:
            config: of the command.
            folder: of the files.
            name, source: of what is evaluated.
            measures: of which some are drawn.
            prefix: of the names of the files.

        Raises:
            UserError: the folder cannot be written to, or there is a file of something else.
        """
        check_writable(folder, "outputs", ELSEWHERE)
        check = partial(
            check_output, suffixes=(), overwrite=config.overwrite, hint="overwrite=true"
        )
        origin = f"{name}, {source}" if source else name
        scores, curve = folder / f"{prefix}evaluation.json", folder / f"{prefix}{MATCH_ERRORS}"
        check(scores, "evaluate", is_ours=partial(_are_scores_of, name, source))
        if false_match_rates(measures):
            check(curve, MEASURES, is_ours=is_picture_of(f"evaluate {origin}"))
        errors = ErrorFiles.check(config, folder, name, prefix, origin)
        return cls(name, source, origin, scores, curve, errors)

    def draw_curve(self, scores: Mapping[str, float], embeddings: SplitEmbeddings) -> None:
        """Draws the curve of verification if there are thresholds; a failure is a note."""
        thresholds = thresholds_of(scores)
        if not thresholds:
            return

        def draw() -> None:
            origin = f"evaluate {self.origin}"
            draw_match_errors(embeddings, thresholds, self.name, self.curve, origin)
            print_line(f"picture     {self.curve}")

        attempt(self.curve.name, draw)


def _are_scores_of(name: str, source: str, path: Path) -> bool:
    """Returns whether a file holds the scores of an evaluation of this name and source."""
    stored = json.loads(read_regular_text(path))
    if not isinstance(stored, dict) or "metrics" not in stored:
        return False
    return stored.get("name") == name and stored.get("source", "") == source


def name_place(path: str | Path) -> str:
    """Returns the name of a file or folder, with digits that tell it from others of this name.

    Its whole path would tell a reader of the scores how folders of this machine are named.
    """
    place = Path(path).resolve()
    return f"{place.name}-{hash_text(str(place))[:8]}"


def name_images(config: Config | EvaluateConfig) -> str:
    """Returns the name of the place that identifies images; empty for a named dataset."""
    return name_place(config.data.root) if config.data.identified_by == "place" else ""


def folder_of_network(config: EvaluateConfig, is_divided: bool) -> Path:
    """Returns the folder of the scores of a network without a run.

    Args:
        config: of the command.
        is_divided: whether the images are those of a closed set, whose scores stand apart.
    """
    nodes = {"backbone", "embedder", "transform"}
    network = config.model_dump_json(
        include=nodes,
        exclude={"backbone": {"lora"}},
        exclude_defaults=True,  # of added options
    )
    # Other weights, or other images of a user: another folder.
    id = hash_text(network + name_images(config))[:8]
    data = config.data.variant
    if is_divided:
        data += f"-{config.protocol.splits}"
    return Path(config.outputs) / EVALUATIONS / f"{data}-{config.backbone['name']}-{id}"


def folder_of_run(config: EvaluateConfig, typed: Collection[str], source: str) -> Path:
    """Returns the folder of the scores of a run: its own, or one below a typed `outputs`.

    Scores of other images than those of the run have a folder of their own there.

    Args:
        config: of the command.
        typed: options that the user gave.
        source: images that are not those of the run (`name_images`); empty: they are.
    """
    run = Path(cast(str, config.run))
    if "outputs" not in typed:
        return run / EVALUATIONS / source if source and is_run(run) else run
    named = named_folder(run).absolute()
    name = f"{named.parent.name}-{named.name}"
    if source:
        name += f"-{source}"
    return Path(config.outputs) / EVALUATIONS / name
