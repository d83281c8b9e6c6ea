"""Consoles of rich that show the control characters of texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dml.core.plain_text import show_text
from dml.core.stream_encoding import fit_encoding


class PlainConsole(Console):
    """A console on which texts are text: no markup, no emoji, and control characters are shown.

    Styles that the program gives are kept.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, where rich would end the program."""
        raise BrokenPipeError

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yields the segments of an object; those that move the cursor are rich's own."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                text = fit_encoding(show_text(segment.text), self.encoding)
                yield Segment(text, segment.style)
