"""The outcome of a check of the machine, and its lines on a terminal and in an issue."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dml.core.errors import RunStopped, first_line
from dml.core.plain_text import show_line

OK, NOTE, FAILED = "ok", "note", "FAILED"
STATE_WIDTH, NAME_WIDTH = 6, 10
NARROW = 50  # columns of a terminal below which texts begin at the left


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check.

    Attributes:
        result: what was seen.
        remedy: what to do if it does not work.
        works: whether it does.
        is_needed: whether a run on this machine needs it.
    """

    result: str
    remedy: str = ""
    works: bool = True
    is_needed: bool = True

    @property
    def state(self) -> str:
        """`ok`, `note` for what no run needs, or `FAILED`."""
        if self.works:
            return OK
        return FAILED if self.is_needed else NOTE


class Check(NamedTuple):
    """A check of the machine.

    Attributes:
        name: a word or two.
        tried: what is tried.
        run: tries it.
        remedy: what to do if `run` raises an exception.
    """

    name: str
    tried: str
    run: Callable[[], Outcome]
    remedy: str


def perform(check: Check) -> Outcome:
    """Returns the outcome of a check, which has failed if it raises an exception."""
    try:
        return check.run()
    except RunStopped:  # the user wants it to end
        raise
    except Exception as error:  # of many classes: of drivers, libraries, disks and networks
        return Outcome(first_line(error), check.remedy, works=False)


def describe(check: Check, outcome: Outcome, width: int) -> Iterator[str]:
    """Yields the lines of an outcome: what was tried, the result, and what to do.

    Args:
        check, outcome: of the machine.
        width: of the terminal, in columns.
    """
    head = f"{outcome.state:<{STATE_WIDTH}}  {check.name:<{NAME_WIDTH}}  "
    indent = "  " if width < NARROW else " " * len(head)
    texts = [f"{head}{check.tried}: {show_line(outcome.result)}"]
    if outcome.remedy and not outcome.works:
        texts.append(f"{indent}to do: {show_line(outcome.remedy)}")
    for text in texts:
        yield textwrap.fill(
            text,
            max(width, NARROW // 2),
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )


def describe_for_issue(
    head: Sequence[str], outcomes: Sequence[tuple[Check, Outcome]]
) -> Iterator[str]:
    """Yields the lines of a block to paste into an issue.

    Args:
        head: lines above the outcomes.
        outcomes: of the machine.
    """
    yield "```"
    yield from head
    for check, outcome in outcomes:
        result = show_line(outcome.result).replace("`", "'")
        yield f"{outcome.state:<{STATE_WIDTH}}  {check.name}: {result}"
    yield "```"
