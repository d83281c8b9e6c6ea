"""Allowed ends of a command: a finished or stopped run, or error lines that name options."""

from __future__ import annotations

import re

from dml.config.schema import EvaluateConfig
from dml.core.exit_status import ExitStatus
from tests.system.limited_process import TIMED_OUT, Ended

LONGEST = 1000  # characters of a line that a user still reads
ROOTS = {
    *EvaluateConfig.model_fields,
    *("params", "resume", "hydra", "torchrun", "memory"),
}


def find_problem(ended: Ended, words: list[str]) -> str:
    """Says what is wrong with how a command ended; "" if nothing is."""
    if ended.status == TIMED_OUT:
        return "hangs"
    for text in (ended.out, ended.err):
        if "Traceback" in text or "Fatal Python error" in text:
            return "traceback"
    if ended.status in (ExitStatus.FINISHED, ExitStatus.TIME_LIMIT):
        return ""
    if ended.status not in (ExitStatus.FAILED, ExitStatus.WRONG_COMMAND, ExitStatus.INTERRUPTED):
        return f"status {ended.status}"
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if not errors:
        return "no line says error"
    for line in errors:
        if len(line) > LONGEST:
            return f"a line of {len(line)} characters"
        if not _names_an_option(line.removeprefix("error: "), words):
            return f"names no option: {line}"
    return ""


def _names_an_option(line: str, words: list[str]) -> bool:
    """Tells if the line begins with an option or a typed word and says something about it."""
    if with_value := re.match(r"(\w+)(\.\w+)*=\S", line):  # "embedder.pooling=x is not one of …"
        return with_value[1] in ROOTS
    name, colon, said = line.partition(": ")
    if not (colon and said.strip()):
        return False
    typed = {word.partition("=")[0].lstrip("+~") for word in words} | set(words)
    root = re.split(r"[.\[/@=]", name.removeprefix("space of "))[0]
    known = said.startswith("no such option") or root in ROOTS or name in typed
    return known or any(line.startswith(word[:20]) for word in words if word)
