"""Figures cannot cost a result: it is stored first, and what fails while drawing is a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dml.core.atomic_io import write_text
from dml.core.errors import describe_failure, is_out_of_memory, refuse_exits
from dml.core.regular_files import read_regular_text
from dml.runs.console import print_line

TO_DRAW, DRAWING = "to draw\n", "drawing\n"  # contents of the file of `DrawingGuard`


def attempt(name: str, draw: Callable[[], object]) -> None:
    """Calls a drawing function; an exception becomes a note, since no figure is worth a result.

    Args:
        name: of the figure, for the note.
        draw: is called without arguments.
    """
    try:
        with refuse_exits():
            draw()
    except Exception as error:
        reason = describe_failure(error)
        if is_out_of_memory(error):
            reason += "; memory is full: end other programs, or take fewer data.workers"
        print_line(f"note: {name} cannot be drawn: {reason}")


@dataclass(frozen=True)
class DrawingGuard:
    """Figures that are drawn after a result is stored, so that they cannot cost it.

    A file says what is left to do, until the figures are drawn. A process that dies while it draws
    (libraries written in C can crash) leaves `drawing` in it: the next one leaves the figures out.

    Attributes:
        path: of the file.
    """

    path: Path

    @property
    def is_pending(self) -> bool:
        """Whether figures are left to draw."""
        return self.path.exists()

    def plan(self) -> None:
        """Notes that the figures are to be drawn, before the result is stored."""
        died_before = self.is_pending and read_regular_text(self.path) == DRAWING
        if not died_before:
            write_text(self.path, TO_DRAW)

    def draw(self, name: str, draw: Callable[[], object]) -> None:
        """Draws planned figures; after a stop in between, the next call draws them again.

        Args:
            name: of the figures, for notes.
            draw: is called without arguments.
        """
        if read_regular_text(self.path) == DRAWING:
            print_line(f"note: {name} left out: a process ended while it drew them")
        else:
            write_text(self.path, DRAWING)
            try:
                attempt(name, draw)
            except BaseException:  # a request to stop
                write_text(self.path, TO_DRAW)
                raise
        self.path.unlink(missing_ok=True)
