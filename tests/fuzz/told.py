"""What a command may end with: a finished or stopped run, or lines that name options."""

from __future__ import annotations

import re

from dml.config.schema import EvaluateConfig
from dml.core.exit_status import ExitStatus
from tests.fuzz.contained import TIMED_OUT, Outcome

LONGEST = 1000  # letters of a line that is still read
ROOTS = {
    *EvaluateConfig.model_fields,
    *("params", "resume", "hydra", "torchrun", "memory"),
}


def complaint(outcome: Outcome, words: list[str]) -> str:
    """What is wrong with how a command ended; empty if nothing is."""
    if outcome.status == TIMED_OUT:
        return "hangs"
    for text in (outcome.out, outcome.err):
        if "Traceback" in text or "Fatal Python error" in text:
            return "traceback"
    if outcome.status in (ExitStatus.FINISHED, ExitStatus.TIME_LIMIT):
        return ""
    if outcome.status not in (
        ExitStatus.FAILED,
        ExitStatus.WRONG_COMMAND,
        ExitStatus.INTERRUPTED,
    ):
        return f"status {outcome.status}"
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    if not errors:
        return "no line says error"
    for line in errors:
        if len(line) > LONGEST:
            return f"a line of {len(line)} letters"
        if not _names_an_option(line.removeprefix("error: "), words):
            return f"names no option: {line}"
    return ""


def _names_an_option(line: str, words: list[str]) -> bool:
    """Whether it begins with an option, or with what was typed, and says something of it."""
    if with_value := re.match(r"(\w+)(\.\w+)*=\S", line):  # "embedder.pooling=x is not one of …"
        return with_value[1] in ROOTS
    name, colon, said = line.partition(": ")
    if not (colon and said.strip()):
        return False
    typed = {word.partition("=")[0].lstrip("+~") for word in words} | set(words)
    root = re.split(r"[.\[/@=]", name.removeprefix("space of "))[0]
    known = said.startswith("no such option") or root in ROOTS or name in typed
    return known or any(line.startswith(word[:20]) for word in words if word)
