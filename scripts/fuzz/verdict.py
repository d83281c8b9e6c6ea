"""What is wrong with how a command ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.fuzz.cases import Case
from scripts.fuzz.place import copy, snapshot
from scripts.fuzz.process import Ended, Ending, start, watch

SILENCE = 30.0  # seconds
MOST_FILES = 3  # that are named


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        ended: its status, and who ended it.
        text: that it printed.
        problems: a few words each.
    """

    ended: Ended
    text: str
    problems: tuple[str, ...]


def try_case(case: Case, prepared: Path, seconds: float, silence: float = SILENCE) -> Outcome:
    """Runs a command in a copy of the prepared folder and judges it.

    Args:
        case: the command.
        prepared: see `scripts.fuzz.place.prepare`.
        seconds, silence: see `scripts.fuzz.process.watch`.
    """
    with TemporaryDirectory() as name, TemporaryDirectory() as apart:
        place, log = Path(name), Path(apart, "log")
        here = copy(prepared, place)
        before = snapshot(place)
        ended = watch(start(case, here, log), log, seconds, silence)
        text = log.read_text(errors="backslashreplace")
        problems = [*_judge_output(case, ended, text), *_judge_files(case, before, snapshot(place))]
    return Outcome(ended, text, tuple(problems))


def _judge_output(case: Case, ended: Ended, text: str) -> list[str]:
    problems = []
    if ended.ending is Ending.SILENT:
        problems.append("silent")
    if "Traceback (most recent call last)" in text:
        problems.append("traceback")
    if ended.status < 0 and ended.ending is Ending.ITSELF:
        problems.append(f"died of signal {-ended.status}")
    if ended.status == 0 and case.wrong:
        problems.append("status 0 on nonsense")
    if ended.status > 0 and not text.strip():
        problems.append("fails without a word")
    return problems


def _judge_files(
    case: Case, before: dict[str, bytes | int], after: dict[str, bytes | int]
) -> list[str]:
    """Returns which files have changed that were there and are not the command's own."""
    changed = []
    for name, content in before.items():
        is_own = name.startswith(tuple(f"here/{own}" for own in case.command.changes))
        if after.get(name) != content and not is_own:
            changed.append(f"changes {name}")
    return changed[:MOST_FILES]
