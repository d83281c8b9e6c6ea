"""Near-duplicates in a file of embeddings, with a picture: `dml.find_duplicates`."""

from __future__ import annotations

from pathlib import Path

from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.outputs import check_not_input
from dml.retrieval import embedding_file
from dml.retrieval.near_duplicates import NearDuplicates, find_near_duplicates
from dml.runs.figures.drawing import check_picture
from dml.runs.figures.run_figures import draw_groups
from dml.runs.file_queries import check_max_pixels
from dml.runs.image_queries import find_background
from dml.training.process_state import restored_process_state


@restored_process_state()
def find_duplicates(
    embeddings: str | Path,
    max_distance: float | None = None,
    *,
    picture: str | Path | None = None,
    index: bool | str = False,
    overwrite: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> NearDuplicates:
    """Returns pairs and groups of near-duplicates in a file, by Euclidean distance in float64.

    Args:
        embeddings: a file of `dml.embed`, of `dml evaluate save=`, or of other software.
        max_distance: largest distance of a pair; None: suggested by the file's own distances
            (`dml.retrieval.near_duplicates.suggest_distance`).
        picture: a PNG of the first groups, a row for each; without a pair it is not written.
        index: pairs come from an index of faiss, which the first call builds and saves beside the
            file; False: all pairs are compared.
        overwrite: replace any file; by default only a picture of a search in the same file.
        max_pixels: largest height × width of an image in the picture.

    Raises:
        UserError: the file or an image cannot be read, the distance is wrong, or faiss is not
            installed.
    """
    check_max_pixels(max_pixels)
    origin = f"search {Path(embeddings).name}"
    if picture is not None:
        check_picture(Path(picture), "picture", overwrite, origin)
        check_not_input(Path(picture), "picture", embeddings)
    made = find_near_duplicates(embeddings, max_distance, index)
    if picture is not None and len(made.groups):
        made_by = embedding_file.open_embeddings(embeddings, decoded=False).made_by
        background = find_background(made_by)
        draw_groups(made.pairs, Path(picture), background, origin, max_pixels)
    return made
