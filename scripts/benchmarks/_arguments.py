"""Types and options that the command lines of several suites share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

import torch

from dml.core.errors import nearest


def at_least(low: int) -> Callable[[str], int]:
    """Returns a type for argparse: an integer of at least `low`."""

    def parse_integer(word: str) -> int:
        if not word.strip().lstrip("-").isdecimal() or int(word) < low:
            raise argparse.ArgumentTypeError(f"{word!r} must be an integer, at least {low}")
        return int(word)

    return parse_integer


def comma_separated(known: Collection[str]) -> Callable[[str], list[str]]:
    """Returns a type for argparse: a list of known names, separated by commas."""

    def parse_names(word: str) -> list[str]:
        chosen = [name.strip() for name in word.split(",")]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"unknown {name!r}{nearest(name, known)}; choose from {', '.join(known)}"
                )
        return chosen

    return parse_names


def add_device(parser: argparse.ArgumentParser) -> None:
    """Adds `--device`, which refuses a GPU that is not available."""
    parser.add_argument("--device", type=_parse_device, metavar="{cpu,cuda}", default="cpu")


def _parse_device(word: str) -> str:
    if word not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"{word!r} must be cpu or cuda")
    if word == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("no GPU is available to torch")
    return word
