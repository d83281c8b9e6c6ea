"""Colors, style and files of all figures."""

from __future__ import annotations

from pathlib import Path

from dml.core.atomic_io import replace_file
from dml.core.outputs import check_output, is_picture_of, picture_metadata
from dml.core.plotting import Axes, Figure, plt

# Colors of Okabe and Ito without yellow: distinct for color-blind readers, on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")
BLUE, ORANGE, GREEN, RED, GREY = "#3366aa", "#cc7722", "#2e8b57", "#bb3333", "#777777"


def tidy(axis: Axes) -> None:
    """Adds a pale grid and removes the frame above and to the right."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path, origin: str = "", dpi: int = 130) -> None:
    """Writes a figure as PNG and closes it.

    Args:
        figure: to write.
        path: of the PNG.
        origin: what a later picture must be made of to replace this one (`dml.core.outputs`);
            empty: `default_origin`.
        dpi: pixels per inch.
    """
    metadata = picture_metadata(origin or default_origin(path))
    with replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi, metadata=metadata)
    plt.close(figure)


def default_origin(path: Path) -> str:
    """Returns the origin of a picture that its name says: `figure learning_curves`."""
    return f"figure {path.stem}"


def check_picture(path: Path, option: str, overwrite: bool = False, origin: str = "") -> Path:
    """Returns the path of a PNG if it may be written.

    Raises:
        UserError: see `dml.core.outputs.check_output`.
    """
    is_ours = is_picture_of(origin or default_origin(Path(path)))
    return check_output(path, option, (".png",), is_ours, overwrite)
