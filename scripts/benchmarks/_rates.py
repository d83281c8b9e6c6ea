"""Rates of training loops that run in turns, and their table."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from statistics import median

from ._training_loops import Loop, Variant


@dataclass
class Measured:
    """Rates of one loop, a number per round; waits of the host in a step."""

    rates: list[float] = field(default_factory=list)
    waits: float | None = None


def measure(
    loops: dict[Variant, Loop], steps: int, rounds: int, drained: int
) -> dict[Variant, Measured]:
    """Returns rates in images/s, round by round.

    Args:
        loops: which have run already.
        steps: measured steps of each loop in a round.
        rounds: each measures all loops in turn.
        drained: steps before these, since the loader filled its queue while others ran.
    """
    measured = {variant: Measured() for variant in loops}
    for number in range(1, rounds + 1):
        for variant, loop in loops.items():
            report_progress(f"round {number} of {rounds}: {variant.name}")
            loop.advance(drained)
            measured[variant].rates.append(steps * loop.setting.batch / loop.advance(steps))
    return measured


def print_rates(
    measured: dict[Variant, Measured], roofs: dict[str, float], memory: dict[Variant, float]
) -> None:
    """Prints a row for each loop; `roofs` by precision in images/s, `memory` in MB."""
    print(f"{'':32}{'images/s':>10}{'ratio':>8}{'waits':>7}{'memory':>11}{'roof':>7}")
    first = next(iter(measured.values()), Measured()).rates
    for variant, found in measured.items():
        rate = median(found.rates)
        ratio = median(own / plain for own, plain in zip(found.rates, first, strict=True))
        used = f"{memory[variant]:8.0f} MB" if variant in memory else ""
        waits = "" if found.waits is None else f"{found.waits:.1f}"
        roof = f"{rate / roofs[variant.precision]:6.0%}" if variant.precision in roofs else ""
        print(
            f"{variant.name:32}{rate:10.1f}{ratio:7.2f}x{waits:>7}{used:>11}{roof:>7}",
            flush=True,
        )


def report_progress(text: str) -> None:
    """Prints the current step to stderr; only the table goes to stdout."""
    print(f"… {text}", file=sys.stderr, flush=True)
