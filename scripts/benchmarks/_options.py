"""What the command lines of several suites have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

import torch

from dml.core.errors import nearest


def at_least(low: int) -> Callable[[str], int]:
    """Returns what argparse makes of a word: a whole number of at least `low`, or its refusal."""

    def whole_number(word: str) -> int:
        if not word.strip().lstrip("-").isdecimal() or int(word) < low:
            raise argparse.ArgumentTypeError(f"{word!r} must be a whole number, at least {low}")
        return int(word)

    return whole_number


def several(known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns what argparse makes of names with commas between: their list, or its refusal."""

    def names(word: str) -> list[str]:
        chosen = [name.strip() for name in word.split(",")]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown {name!r}{nearest(name, known)}; of {', '.join(known)}"
                )
        return chosen

    return names


def add_device(parser: argparse.ArgumentParser) -> None:
    """Adds `--device`, which refuses a GPU that is not there."""
    parser.add_argument("--device", type=_device, metavar="{cpu,cuda}", default="cpu")


def _device(word: str) -> str:
    if word not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{word!r} is neither cpu nor cuda")
    if word == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("this machine has no GPU that torch can use")
    return word
