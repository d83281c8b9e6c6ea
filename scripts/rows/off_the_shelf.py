"""CUB with DINO ViT-S/16 without training, beside the number of Open Metric Learning (OML)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dml.cli.prepare_for import prepare_for
from dml.config.check import check
from dml.config.compositions import compose_config
from dml.core.plain_text import print_plain
from dml.core.progress import show_progress
from dml.data.image_index import split_box
from dml.results.catalog import Cell, list_cells
from dml.results.published import PublishedResult, find_results
from dml.runs.build import Builder
from dml.runs.experiment import run

EXPERIMENT = "off_the_shelf"
NETWORK = "vit_small_patch16_224.dino"
METRIC = "recall_at_1"
CHOICES = ("data=cub", f"backbone.model={NETWORK}")
VERSIONS = ("dml-benchmark", "torch", "torchvision", "timm", "numpy", "pillow")


@dataclass(frozen=True)
class Score:
    """Recall@1 of one way to cut the images.

    Attributes:
        title: of the images.
        cell: that was run.
        summary: of its run.
        published: the number on the same images; None: there is none.
    """

    title: str
    cell: Cell
    summary: dict[str, Any]
    published: PublishedResult | None

    @property
    def ours(self) -> float:
        """Recall@1 in percent."""
        return 100 * self.summary["metrics"][METRIC]["mean"]

    @property
    def line(self) -> str:
        """Ours, the published number and the difference."""
        if self.published is None:
            return f"{self.title}: Recall@1 {self.ours:.1f}, nothing published"
        difference = self.ours - self.published.value
        return (
            f"{self.title}: Recall@1 {self.ours:.1f}, OML {self.published.text}, "
            f"difference {difference:+.1f}"
        )


def run_first_row(words: Sequence[str]) -> int:
    """Prepares what is needed, scores boxes and whole images, and prints the result.

    Args:
        words: further options of train.

    Raises:
        ConfigError: wrong options.
        UserError: the dataset or the weights cannot be had.
    """
    options = [*CHOICES, *words]
    prepare_for([f"experiment={EXPERIMENT}", *options], lists=False, checks=False)
    scores = [
        score_images("boxes, squashed to 224 x 224", options),
        score_images("whole images, squashed to 224 x 224", [*options, "data.crop=null"]),
    ]
    builder = Builder(check(compose_config(scores[0].cell.overrides)))
    block = describe_scores(scores, builder)
    print_plain("")
    for score in scores:
        print_plain(score.line)
    print_plain("\nTo paste into an issue:\n")
    print_plain("\n".join(block))
    return 0


def score_images(title: str, options: Sequence[str]) -> Score:
    """Returns the score of a cell of the experiment, run now unless it has been run.

    Args:
        title: of the images.
        options: of train, which leave one cell.
    """
    (cell,) = list_cells(EXPERIMENT, options)
    summary = run(check(compose_config(cell.overrides)))
    (key,) = cell.result_keys()
    published = find_results(key, METRIC, "oml", ["zoo"])
    return Score(title, cell, summary, next(iter(published), None))


def describe_scores(scores: Sequence[Score], builder: Builder) -> list[str]:
    """Returns the lines of a block with scores, versions, processor and checksums.

    Args:
        scores: of all ways to cut the images.
        builder: of the first of them, which has the images and the weights.
    """
    summary = scores[0].summary
    lines = ["```"]
    for score in scores:
        lines.append(score.line)
    lines.append(f"network: {NETWORK}")
    lines.append(f"revision: {summary['git_revision'] or 'unknown'}")
    lines.append(f"processor: {summary['device']}")
    lines.append(f"versions: {', '.join(_list_versions(summary['versions']))}")
    weights = builder.describe_weights()
    if weights is not None and weights.path is not None:
        lines.append(f"weights: sha256 {hash_files([weights.path])}")
    files = list_files(builder.read_dataset().images)
    shown = show_progress(files, "checksum of the images", len(files))
    lines.append(f"images: {len(files):,} files, sha256 {hash_files(shown)}")
    lines.append("```")
    return lines


def _list_versions(versions: dict[str, str]) -> Iterator[str]:
    for name in VERSIONS:
        if name in versions:
            yield f"{name} {versions[name]}"


def list_files(images: Iterable[str | Path]) -> list[Path]:
    """Returns the files of images, without their boxes, in alphabetical order."""
    return sorted({split_box(image)[0] for image in images})


def hash_files(files: Iterable[Path]) -> str:
    """Returns the sha256 of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
